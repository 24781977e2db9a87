-- Health of a set for Argo CD: resource.customizations.health.kubevirt.io_VirtualMachineReplicaSet in the ConfigMap argocd-cm.
if obj.metadata.deletionTimestamp ~= nil then
  return { status = "Progressing", message = "The set is being deleted" }
end
if obj.status == nil or (obj.status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return { status = "Progressing", message = "virt-controller has not looked at the spec yet" }
end
local found = {}
for _, condition in ipairs(obj.status.conditions or {}) do
  found[condition.type] = condition
end
if found.ReplicaFailure ~= nil then
  return { status = "Degraded", message = found.ReplicaFailure.message }
end
if found.Reconciling == nil then
  return { status = "Healthy", message = "All replicas are available" }
end
if found.ReplicaPaused ~= nil then
  return { status = "Suspended", message = found.ReplicaPaused.message }
end
return { status = "Progressing", message = found.Reconciling.message }
