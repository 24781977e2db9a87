"""CPU models and features that libvirt 11.3 (``cpu_map``) and QEMU 10.0 (``qemu-system-x86_64 -cpu help``) both have."""

from __future__ import annotations

from typing import Final

_MODELS: Final = """
    486 486-v1 athlon athlon-v1 Broadwell Broadwell-IBRS Broadwell-noTSX Broadwell-noTSX-IBRS Broadwell-v1 Broadwell-v2 Broadwell-v3
    Broadwell-v4 Cascadelake-Server Cascadelake-Server-noTSX Cascadelake-Server-v1 Cascadelake-Server-v2 Cascadelake-Server-v3
    Cascadelake-Server-v4 Cascadelake-Server-v5 Conroe Conroe-v1 Cooperlake Cooperlake-v1 Cooperlake-v2 core2duo core2duo-v1 coreduo
    coreduo-v1 Denverton Denverton-v1 Denverton-v2 Denverton-v3 Dhyana Dhyana-v1 Dhyana-v2 EPYC EPYC-Genoa EPYC-Genoa-v1 EPYC-IBPB
    EPYC-Milan EPYC-Milan-v1 EPYC-Milan-v2 EPYC-Rome EPYC-Rome-v1 EPYC-Rome-v2 EPYC-Rome-v3 EPYC-Rome-v4 EPYC-v1 EPYC-v2 EPYC-v3 EPYC-v4
    GraniteRapids GraniteRapids-v1 GraniteRapids-v2 Haswell Haswell-IBRS Haswell-noTSX Haswell-noTSX-IBRS Haswell-v1 Haswell-v2
    Haswell-v3 Haswell-v4 Icelake-Server Icelake-Server-noTSX Icelake-Server-v1 Icelake-Server-v2 Icelake-Server-v3 Icelake-Server-v4
    Icelake-Server-v5 Icelake-Server-v6 Icelake-Server-v7 IvyBridge IvyBridge-IBRS IvyBridge-v1 IvyBridge-v2 KnightsMill KnightsMill-v1
    kvm32 kvm32-v1 kvm64 kvm64-v1 n270 n270-v1 Nehalem Nehalem-IBRS Nehalem-v1 Nehalem-v2 Opteron_G1 Opteron_G1-v1 Opteron_G2
    Opteron_G2-v1 Opteron_G3 Opteron_G3-v1 Opteron_G4 Opteron_G4-v1 Opteron_G5 Opteron_G5-v1 Penryn Penryn-v1 pentium pentium-v1
    pentium2 pentium2-v1 pentium3 pentium3-v1 phenom phenom-v1 qemu32 qemu32-v1 qemu64 qemu64-v1 SandyBridge SandyBridge-IBRS
    SandyBridge-v1 SandyBridge-v2 SapphireRapids SapphireRapids-v1 SapphireRapids-v2 SapphireRapids-v3 SierraForest SierraForest-v1
    Skylake-Client Skylake-Client-IBRS Skylake-Client-noTSX-IBRS Skylake-Client-v1 Skylake-Client-v2 Skylake-Client-v3 Skylake-Client-v4
    Skylake-Server Skylake-Server-IBRS Skylake-Server-noTSX-IBRS Skylake-Server-v1 Skylake-Server-v2 Skylake-Server-v3 Skylake-Server-v4
    Skylake-Server-v5 Snowridge Snowridge-v1 Snowridge-v2 Snowridge-v3 Snowridge-v4 Westmere Westmere-IBRS Westmere-v1 Westmere-v2
"""
_FEATURES: Final = """
    3dnow 3dnowext 3dnowprefetch abm acpi adx aes amd-no-ssb amd-psfd amd-ssbd amd-stibp amx-bf16 amx-complex amx-fp16 amx-int8 amx-tile
    apic arat arch-capabilities arch-lbr auto-ibrs avic avx avx-ifma avx-ne-convert avx-vnni avx-vnni-int16 avx-vnni-int8 avx10
    avx10-128 avx10-256 avx10-512 avx2 avx512-4fmaps avx512-4vnniw avx512-bf16 avx512-fp16 avx512-vp2intersect avx512-vpopcntdq
    avx512bitalg avx512bw avx512cd avx512dq avx512er avx512f avx512ifma avx512pf avx512vbmi avx512vbmi2 avx512vl avx512vnni bhi-ctrl
    bmi1 bmi2 bus-lock-detect cid cldemote clflush clflushopt clwb clzero cmov cmp_legacy cmpccxadd core-capability cr8legacy cx16 cx8
    dca ddpd-u de decodeassists ds ds_cpl dtes64 eraps erms est extapic f16c fb-clear fbsdp-no fdp-excptn-only flush-l1d flushbyasid fma
    fma4 fpu fred fsgsbase fsrc fsrm fsrs fxsr fxsr_opt fzrm gds-no gfni hle ht hypervisor ia64 ibpb ibpb-brtype ibrs ibrs-all ibs
    intel-psfd intel-pt intel-pt-lip invpcid invtsc ipred-ctrl la57 lahf_lm lam lbrv lfence-always-serializing lkgs lm lwp mca mcdt-no
    mce md-clear mds-no misalignsse mmx mmxext monitor movbe movdir64b movdiri mpx msr mtrr no-nested-data-bp nodeid_msr npt nrip-save
    null-sel-clr-base nx osvw overflow-recov pae pat pause-filter pbe pbrsb-no pcid pclmuldq pcommit pdcm pdpe1gb perfctr_core
    perfctr_nb perfmon-v2 pfthreshold pge pks pku pn pni popcnt prefetchiti pschange-mc-no psdp-no pse pse36 rdctl-no rdpid rdrand
    rdseed rdtscp rfds-clear rfds-no rrsba-ctrl rsba rtm sbdr-ssdp-no sbpb sep serialize sgx sgx-aex-notify sgx-debug sgx-edeccssa
    sgx-exinfo sgx-kss sgx-mode64 sgx-provisionkey sgx-tokenkey sgx1 sgx2 sgxlc sha-ni sha512 skinit skip-l1dfl-vmentry sm3 sm4 smap
    smep smx spec-ctrl split-lock-detect srso-no srso-user-kernel-no ss ssb-no ssbd sse sse2 sse4.1 sse4.2 sse4a ssse3 stibp
    stibp-always-on succor svm svm-lock svme-addr-chk syscall taa-no tbm tce tm tm2 topoext tsc tsc-deadline tsc-scale tsc_adjust
    tsx-ctrl tsx-ldtrk umip v-vmsave-vmload vaes vgif virt-ssbd vmcb-clean vme vmx vmx-activity-hlt vmx-activity-shutdown
    vmx-activity-wait-sipi vmx-any-errcode vmx-apicv-register vmx-apicv-vid vmx-apicv-x2apic vmx-apicv-xapic vmx-cr3-load-noexit
    vmx-cr3-store-noexit vmx-cr8-load-exit vmx-cr8-store-exit vmx-desc-exit vmx-enable-user-wait-pause vmx-encls-exit
    vmx-entry-ia32e-mode vmx-entry-load-bndcfgs vmx-entry-load-efer vmx-entry-load-fred vmx-entry-load-pat
    vmx-entry-load-perf-global-ctrl vmx-entry-load-pkrs vmx-entry-load-rtit-ctl vmx-entry-noload-debugctl vmx-ept vmx-ept-1gb
    vmx-ept-2mb vmx-ept-advanced-exitinfo vmx-ept-execonly vmx-eptad vmx-eptp-switching vmx-exit-ack-intr vmx-exit-clear-bndcfgs
    vmx-exit-clear-rtit-ctl vmx-exit-load-efer vmx-exit-load-pat vmx-exit-load-perf-global-ctrl vmx-exit-load-pkrs
    vmx-exit-nosave-debugctl vmx-exit-save-efer vmx-exit-save-pat vmx-exit-save-preemption-timer vmx-exit-secondary-ctls
    vmx-flexpriority vmx-hlt-exit vmx-ins-outs vmx-intr-exit vmx-invept vmx-invept-all-context vmx-invept-single-context vmx-invlpg-exit
    vmx-invpcid-exit vmx-invvpid vmx-invvpid-all-context vmx-invvpid-single-addr vmx-io-bitmap vmx-io-exit vmx-monitor-exit
    vmx-movdr-exit vmx-msr-bitmap vmx-mtf vmx-mwait-exit vmx-nested-exception vmx-nmi-exit vmx-page-walk-4 vmx-page-walk-5
    vmx-pause-exit vmx-ple vmx-pml vmx-posted-intr vmx-preemption-timer vmx-rdpmc-exit vmx-rdrand-exit vmx-rdseed-exit vmx-rdtsc-exit
    vmx-rdtscp-exit vmx-secondary-ctls vmx-shadow-vmcs vmx-store-lma vmx-true-ctls vmx-tsc-offset vmx-tsc-scaling vmx-unrestricted-guest
    vmx-vintr-pending vmx-vmfunc vmx-vmwrite-vmexit-fields vmx-vnmi vmx-vnmi-pending vmx-vpid vmx-wbinvd-exit vmx-xsaves
    vmx-zero-len-inject vnmi vpclmulqdq waitpkg wbnoinvd wdt wrmsrns x2apic xfd xgetbv1 xop xsave xsavec xsaveerptr xsaveopt xsaves xtpr
    zero-fcs-fds
"""
MODELS: Final = frozenset(_MODELS.split())
FEATURES: Final = frozenset(_FEATURES.split())
