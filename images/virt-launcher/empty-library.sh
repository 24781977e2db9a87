#!/bin/sh
# empty-library.sh USER LIBRARY RESULT: writes a library with the symbols that the library USER takes from LIBRARY.
#
# Each function returns 0. Names and versions are the same, because the dynamic linker looks for all of them when a program starts.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
symbols() { readelf --dyn-syms --wide "$1" | awk -v undefined="$2" 'NF > 7 && ($7 == "UND") == undefined {sub("@@", "@", $8); print $8}' | sort -u; }

symbols "$1" 1 >"$scratch/taken"
symbols "$2" 0 | comm -12 - "$scratch/taken" >"$scratch/names" # lines like curl_easy_init@CURL_GNUTLS_3
awk -F@ '{print ".globl " $1 "; " $1 ":"} END {print "xor %eax, %eax; ret; .section .note.GNU-stack"}' "$scratch/names" | as -o "$scratch/empty.o"
awk -F@ '{of[$2] = of[$2] $1 "; "} END {for (each in of) print each " {" of[each] "};"}' "$scratch/names" >"$scratch/versions"
ld -shared -s -soname "$(basename "$2")" --version-script "$scratch/versions" -o "$3" "$scratch/empty.o"
