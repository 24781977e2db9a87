module kubevirt.test/fetch

go 1.26.0
