// Command informers runs client-go informers against one resource and tells, when asked, what they hold.
//
// Three informers: of everything, of one namespace, of one label. Each keeps a second copy of its objects, made of nothing but the calls of
// its event handler; a call that does not fit that copy (an addition of what is there, an update or a deletion of what is not, a revision
// that goes back) is recorded as a fault.
//
// It reads commands from its standard input, one a line, and writes one JSON document a line: "dump" answers with what each informer holds.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	maxFaults  = 20
	maxHistory = 8
)

// follower is an informer and the copy that its events make.
type follower struct {
	informer cache.SharedIndexInformer

	mu      sync.Mutex
	folded  map[string]int64
	faults  []string
	history map[string][]string // the last calls for each key, to explain a fault
	added   int
	updated int
	deleted int
}

// report is what "dump" says of one informer.
type report struct {
	Synced   bool                       `json:"synced"`
	Revision string                     `json:"revision"`
	Objects  map[string]json.RawMessage `json:"objects"`
	Folded   map[string]int64           `json:"folded"`
	Faults   []string                   `json:"faults"`
	Added    int                        `json:"added"`
	Updated  int                        `json:"updated"`
	Deleted  int                        `json:"deleted"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file that leads to the server")
	group := flag.String("group", "", "API group")
	version := flag.String("version", "", "version of the group")
	resource := flag.String("resource", "", "plural name of the resource")
	namespace := flag.String("namespace", "", "namespace of the second informer")
	selector := flag.String("selector", "", "label selector of the third informer")
	flag.Parse()
	if err := run(*kubeconfig, schema.GroupVersionResource{Group: *group, Version: *version, Resource: *resource}, *namespace, *selector); err != nil {
		fmt.Fprintln(os.Stderr, "informers:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string, resource schema.GroupVersionResource, namespace, selector string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	followers := map[string]*follower{
		"everything": newFollower(client, resource, metav1.NamespaceAll, ""),
		"namespace":  newFollower(client, resource, namespace, ""),
		"label":      newFollower(client, resource, metav1.NamespaceAll, selector),
	}
	stop := make(chan struct{})
	for _, each := range followers {
		if _, err := each.informer.AddEventHandler(each); err != nil {
			return fmt.Errorf("add a handler: %w", err)
		}
		go each.informer.Run(stop)
	}
	return answer(followers)
}

// answer serves commands until the input ends.
func answer(followers map[string]*follower) error {
	lines := bufio.NewScanner(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if lines.Text() != "dump" {
			return fmt.Errorf("unknown command %q", lines.Text())
		}
		reports := map[string]report{}
		for name, each := range followers {
			told, err := each.report()
			if err != nil {
				return err
			}
			reports[name] = told
		}
		if err := output.Encode(reports); err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
	}
	return lines.Err()
}

func newFollower(client dynamic.Interface, resource schema.GroupVersionResource, namespace, selector string) *follower {
	tweak := func(options *metav1.ListOptions) { options.LabelSelector = selector }
	generic := dynamicinformer.NewFilteredDynamicInformer(client, resource, namespace, 0, cache.Indexers{}, tweak)
	return &follower{informer: generic.Informer(), folded: map[string]int64{}, history: map[string][]string{}}
}

func (f *follower) report() (report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := report{
		Synced:   f.informer.HasSynced(),
		Revision: f.informer.LastSyncResourceVersion(),
		Objects:  map[string]json.RawMessage{},
		Folded:   f.folded,
		Faults:   f.faults,
		Added:    f.added,
		Updated:  f.updated,
		Deleted:  f.deleted,
	}
	for _, each := range f.informer.GetStore().List() {
		object := each.(*unstructured.Unstructured)
		encoded, err := object.MarshalJSON()
		if err != nil {
			return told, fmt.Errorf("encode %s: %w", keyOf(object), err)
		}
		told.Objects[keyOf(object)] = encoded
	}
	return told, nil
}

// OnAdd implements cache.ResourceEventHandler.
func (f *follower) OnAdd(object any, _ bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.added++
	key, revision := f.read(object)
	f.remember(key, "added at %d", revision)
	if held, ok := f.folded[key]; ok {
		f.fault("%s was added at %d, and is there at %d", key, revision, held)
	}
	f.folded[key] = revision
}

// OnUpdate implements cache.ResourceEventHandler.
func (f *follower) OnUpdate(old, object any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updated++
	key, revision := f.read(object)
	_, before := f.read(old)
	f.remember(key, "updated from %d to %d", before, revision)
	held, ok := f.folded[key]
	switch {
	case !ok:
		f.fault("%s was updated to %d, and is not there", key, revision)
	case held != before:
		f.fault("%s was updated from %d, and is there at %d", key, before, held)
	case revision < before:
		f.fault("%s went back from %d to %d", key, before, revision)
	}
	f.folded[key] = revision
}

// OnDelete implements cache.ResourceEventHandler.
func (f *follower) OnDelete(object any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deleted++
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj // the informer listed anew, and saw that it is gone
		f.remember(unknown.Key, "found gone")
	}
	key, revision := f.read(object)
	f.remember(key, "deleted at %d", revision)
	if held, ok := f.folded[key]; !ok {
		f.fault("%s was deleted at %d, and is not there", key, revision)
	} else if revision < held {
		f.fault("%s was deleted at %d, and is there at %d", key, revision, held)
	}
	delete(f.folded, key)
}

func (f *follower) read(object any) (string, int64) {
	read := object.(*unstructured.Unstructured)
	revision, err := strconv.ParseInt(read.GetResourceVersion(), 10, 64)
	if err != nil {
		f.fault("%s has the revision %q", keyOf(read), read.GetResourceVersion())
	}
	return keyOf(read), revision
}

func (f *follower) fault(format string, key string, arguments ...any) {
	if len(f.faults) < maxFaults {
		what := fmt.Sprintf(format, append([]any{key}, arguments...)...)
		f.faults = append(f.faults, fmt.Sprintf("%s (%s)", what, strings.Join(f.history[key], ", ")))
	}
}

func (f *follower) remember(key, format string, arguments ...any) {
	calls := append(f.history[key], time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, arguments...))
	f.history[key] = calls[max(len(calls)-maxHistory, 0):]
}

func keyOf(object *unstructured.Unstructured) string {
	return object.GetNamespace() + "/" + object.GetName()
}
