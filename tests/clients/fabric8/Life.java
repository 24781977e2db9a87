// Watches virtual machines of a namespace, with fabric8's watch and its informer, while it creates, edits and deletes one.
// Arguments: the namespace and the machine as JSON. Each event is a line of the output.

import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

public class Life {
  static final Set<String> seen = ConcurrentHashMap.newKeySet();
  static final CountDownLatch deleted = new CountDownLatch(2);

  static void tell(String by, String event, GenericKubernetesResource machine) {
    String line = by + " " + event + " " + machine.getMetadata().getName();
    if (seen.add(line)) {
      System.out.println(line);
    }
    if (event.equals("DELETED")) {
      deleted.countDown();
    }
  }

  public static void main(String[] arguments) throws Exception {
    var machine = Serialization.unmarshal(arguments[1], GenericKubernetesResource.class);
    try (KubernetesClient client = new KubernetesClientBuilder().build()) {
      var machines = client.genericKubernetesResources(machine.getApiVersion(), machine.getKind()).inNamespace(arguments[0]);
      System.out.println("listed " + machines.list().getItems().size());
      var watch = machines.watch(new Watcher<GenericKubernetesResource>() {
        @Override
        public void eventReceived(Action action, GenericKubernetesResource seen) {
          tell("watch", action.name(), seen);
        }

        @Override
        public void onClose(WatcherException cause) {
          System.out.println("watch closed: " + cause);
        }
      });
      var informer = machines.inform(new ResourceEventHandler<GenericKubernetesResource>() {
        @Override
        public void onAdd(GenericKubernetesResource seen) {
          tell("informer", "ADDED", seen);
        }

        @Override
        public void onUpdate(GenericKubernetesResource before, GenericKubernetesResource seen) {
          tell("informer", "MODIFIED", seen);
        }

        @Override
        public void onDelete(GenericKubernetesResource seen, boolean unknown) {
          tell("informer", "DELETED", seen);
        }
      });
      machines.resource(machine).create();
      machines.withName(machine.getMetadata().getName()).edit(found -> {
        found.getMetadata().setLabels(java.util.Map.of("edited-by", "fabric8"));
        return found;
      });
      machines.withName(machine.getMetadata().getName()).delete();
      if (!deleted.await(60, TimeUnit.SECONDS)) {
        System.out.println("no deletion was seen within a minute");
      }
      informer.close();
      watch.close();
    }
  }
}
