-- Health of a virtual machine for Argo CD: resource.customizations.health.kubevirt.io_VirtualMachine in the ConfigMap argocd-cm.
-- The check that Argo CD has built in is for KubeVirt's objects, which have other fields in their status.
local health = { status = "Progressing", message = "" }
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "The virtual machine is being deleted"
  return health
end
if obj.status == nil or (obj.status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  health.message = "virt-controller has not looked at the spec yet"
  return health
end
local found = {}
for _, condition in ipairs(obj.status.conditions or {}) do
  found[condition.type] = condition
end
local function is(kind, status)
  return found[kind] ~= nil and found[kind].status == status
end
if is("Stalled", "True") then
  return { status = "Degraded", message = found.Stalled.message }
end
if is("Paused", "True") then
  return { status = "Suspended", message = found.Paused.message }
end
if is("Ready", "True") then
  return { status = "Healthy", message = found.Ready.message }
end
local phase = obj.status.phase
if phase == "Suspended" then
  return { status = "Suspended", message = "Its memory is in an image" }
end
local off = phase == "Stopped" or phase == "Succeeded" or phase == "Failed"
if found.Ready == nil and off then
  return { status = "Healthy", message = "Off, as the spec says" }
end
local request = obj.status.request
if off and request ~= nil and request.action == "Stop" and found.Ready.reason ~= "CrashLoopBackOff" then
  return { status = "Suspended", message = "Stopped by request" }
end
if found.Ready ~= nil then
  health.message = found.Ready.message
end
return health
