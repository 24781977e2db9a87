module kubevirt.test/argocd-checks

go 1.26.3

require github.com/argoproj/argo-cd/v3 v3.5.7
