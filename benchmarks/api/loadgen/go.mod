module kubevirt.test/loadgen

go 1.26.0
