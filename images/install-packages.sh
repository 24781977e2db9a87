#!/bin/sh
# install-packages.sh NAME…: installs Debian packages, in the versions that packages.lock beside this script has.
#
# A package that is installed and stands there with no or another version ends the build, so that nothing comes into a release unseen.
# LOCKED=no only prefers those versions: a mirror keeps no old ones, and tests want to go on. `make pins` writes packages.lock.
set -eu
here=$(dirname "$0")
installed() { dpkg-query --show --showformat '${Package}=${Version}\n' | LC_ALL=C sort; }

# A base that has them all is left as it is, where the lock is only a preference.
if [ "${LOCKED:-yes}" = no ] && dpkg-query --show "$@" >/dev/null 2>&1; then
  exit 0
fi
installed >"$here/before"
LC_ALL=C sort -u "$here/packages.lock" >"$here/locked"
# Priority 1001: also where that is an older version than another one at hand (apt_preferences(5)).
sed -n 's/^\(.*\)=\(.*\)$/Package: \1\nPin: version \2\nPin-Priority: 1001\n/p' "$here/locked" >/etc/apt/preferences.d/locked
apt-get update
apt-get install --yes --no-install-recommends --allow-downgrades "$@"
installed | LC_ALL=C comm -13 "$here/before" - | LC_ALL=C comm -23 - "$here/locked" >"$here/unlocked"
if [ -s "$here/unlocked" ] && [ "${LOCKED:-yes}" != no ]; then
  echo "packages.lock does not have: $(tr '\n' ' ' <"$here/unlocked")" >&2
  exit 1
fi
rm -rf /etc/apt/preferences.d/locked "$here/before" "$here/locked" "$here/unlocked" /var/lib/apt/lists/* /var/cache/apt/*.bin
