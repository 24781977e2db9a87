"""Programs of other projects that read our objects: Helm 4, kstatus and Argo CD's health checks."""
