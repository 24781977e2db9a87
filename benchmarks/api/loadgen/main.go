// loadgen asks one API server for one kind of operation, as fast as it answers, over a fixed number of connections (a closed loop), and
// prints one JSON object: how many, how long each took, and how much processor time the processes named by -pid used meanwhile.
//
// The processor time is read here, between the first and the last measured request, so that connecting and warming up are not in it. A
// sample lasts until the first process has used -cpu seconds: its clock has ticks of 10 ms. Any unexpected status code fails the sample.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type settings struct {
	server, authority, certificate, key string
	operation, path, names, query       string
	template, replacement               string
	connections, objects, watchers      int
	rate                                float64
	seconds, longest, cpu               float64
	pids                                string
	protocol                            string
	selector                            string
	requests                            string
	once                                bool
	drawn                               [][]request // of each worker; nil: objects come in turn, with no fields of their own
}

type sample struct {
	Operation    string             `json:"operation"`
	Protocol     string             `json:"protocol"`
	Connections  int                `json:"connections"`
	Count        int                `json:"count"`
	Warm         int                `json:"warm"`    // requests before these
	Highest      int                `json:"highest"` // no object made has this number or a higher one
	Seconds      float64            `json:"seconds"`
	CPU          map[string]float64 `json:"cpu_seconds"`
	P50          float64            `json:"p50_us"`
	P99          float64            `json:"p99_us"`
	Bytes        int64              `json:"bytes_per_answer"`
	Deliveries   int                `json:"deliveries,omitempty"`
	DeliveryP50  float64            `json:"delivery_p50_us,omitempty"`
	DeliveryP99  float64            `json:"delivery_p99_us,omitempty"`
	Watchers     int                `json:"watchers,omitempty"`
	GeneratorCPU float64            `json:"generator_cpu_seconds"`
}

func parse() settings {
	var s settings
	flag.StringVar(&s.server, "server", "", "https://127.0.0.1:PORT")
	flag.StringVar(&s.authority, "ca", "", "certificate authority of the server, PEM file")
	flag.StringVar(&s.certificate, "cert", "", "client certificate, PEM file")
	flag.StringVar(&s.key, "key", "", "its key, PEM file")
	flag.StringVar(&s.operation, "op", "", "seed, delete, get, list, create, update, patch, apply, watch, handshake")
	flag.StringVar(&s.path, "path", "", "of the collection")
	flag.StringVar(&s.names, "names", "o", "objects are named NAMES-00000 and so on")
	flag.StringVar(&s.query, "query", "", "of each request, without the question mark")
	flag.StringVar(&s.template, "template", "", "file with an object in which @NAME@, @SHARD@ and @SEQUENCE@ are replaced")
	flag.StringVar(&s.replacement, "patch", "", "file with a merge patch in which @SEQUENCE@ is replaced")
	flag.IntVar(&s.connections, "connections", 16, "how many ask at once")
	flag.IntVar(&s.objects, "objects", 128, "how many objects are asked for, or made")
	flag.IntVar(&s.watchers, "watchers", 100, "how many watch")
	flag.Float64Var(&s.rate, "rate", 0, "writes a second; 0: a write is followed by the next once all watchers have it")
	flag.Float64Var(&s.seconds, "seconds", 1, "how long at least")
	flag.Float64Var(&s.longest, "longest", 60, "how long at most")
	flag.Float64Var(&s.cpu, "cpu", 0, "how many seconds of processor time the first process shall have used")
	flag.StringVar(&s.pids, "pid", "", "NAME=PID,...: whose processor time is measured")
	flag.StringVar(&s.protocol, "protocol", "http/1.1", "http/1.1 or h2; h2 is one connection for all, as client-go has it")
	flag.StringVar(&s.selector, "watch-query", "", "further query of each watch")
	flag.StringVar(&s.requests, "requests", "", "file with an object's number and header fields of its own for each request")
	flag.BoolVar(&s.once, "once", false, "each of these requests once, and nothing is warmed up")
	flag.Parse()
	return s
}

// onlyLoopback keeps a mistyped address from putting load on somebody else's server.
func onlyLoopback(server string) error {
	parsed, err := url.Parse(server)
	if err != nil {
		return err
	}
	ip := net.ParseIP(parsed.Hostname())
	if ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%s is not on loopback", server)
	}
	return nil
}

func main() {
	s := parse()
	result, err := run(s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		os.Exit(1)
	}
}

func run(s settings) (*sample, error) {
	if err := onlyLoopback(s.server); err != nil {
		return nil, err
	}
	d, err := newDialer(s)
	if err != nil {
		return nil, err
	}
	if s.requests != "" {
		if s.drawn, err = drawn(s.requests, s.connections); err != nil {
			return nil, err
		}
	}
	switch s.operation {
	case "watch":
		return watch(s, d)
	case "handshake":
		return handshakes(s, d)
	}
	work, err := operation(s)
	if err != nil {
		return nil, err
	}
	if s.once {
		work = once(s, work)
	}
	return loop(s, d, work)
}

// worker does one request after the other; its exchanger is its own.
type worker struct {
	number int
	server exchanger
	own    string    // header fields of the present request alone
	start  time.Time // of the present step; one that has to wait for its turn sets it when that has come
	times  []uint32
	bytes  int64
}

func (j job) warmUp(w *worker) error {
	for n := range j.warm {
		if _, err := j.step(w, n); err != nil {
			return err
		}
	}
	w.bytes = 0
	return nil
}

// step does the n-th request of a worker; done tells that there is nothing more to do.
type step func(w *worker, n int) (done bool, err error)

// job is an operation: prepare runs once for each worker before the clock starts, and then each worker does its first few steps, so that
// who may do what with which object is known by then, as it is in the long run.
type job struct {
	prepare func(w *worker) error
	step    step
	finite  bool // ends by itself
	warm    int  // steps of each worker that are not measured
}

func loop(s settings, d *dialer, work job) (*sample, error) {
	workers := make([]*worker, s.connections)
	for number := range workers {
		if d.h2 != nil {
			workers[number] = &worker{number: number, server: d.h2}
			continue
		}
		connection, err := d.connect()
		if err != nil {
			return nil, err
		}
		workers[number] = &worker{number: number, server: connection}
	}
	return loopOver(s, d, workers, work)
}

// loopOver measures with workers that exist.
func loopOver(s settings, d *dialer, workers []*worker, work job) (*sample, error) {
	if err := inParallel(workers, work.prepare); err != nil {
		return nil, err
	}
	if err := inParallel(workers, func(w *worker) error { return work.warmUp(w) }); err != nil {
		return nil, err
	}
	clocks, err := newClocks(s.pids)
	if err != nil {
		return nil, err
	}
	var stop atomic.Bool
	began := time.Now()
	finished := make(chan struct{})
	go func() {
		clocks.until(s, began, finished)
		stop.Store(!work.finite)
	}()
	err = inParallel(workers, func(w *worker) error {
		for n := work.warm; !stop.Load(); n++ {
			w.start = time.Now()
			done, err := work.step(w, n)
			if err != nil || done {
				return err
			}
			w.times = append(w.times, uint32(time.Since(w.start).Microseconds()))
		}
		return nil
	})
	seconds := time.Since(began).Seconds()
	used := clocks.used()
	close(finished)
	if err != nil {
		return nil, err
	}
	result := summary(s, d, workers, seconds, used)
	result.Warm = work.warm * s.connections
	return result, nil
}

func summary(s settings, d *dialer, workers []*worker, seconds float64, used map[string]float64) *sample {
	var times []uint32
	var bytes int64
	var most int
	for _, w := range workers {
		most = max(most, len(w.times)+1)
		times = append(times, w.times...)
		bytes += w.bytes
	}
	result := &sample{Operation: s.operation, Protocol: d.protocol(), Connections: s.connections, Count: len(times), Seconds: seconds, CPU: used}
	result.Highest = most * s.connections
	result.P50, result.P99 = percentiles(times)
	result.Bytes = bytes / int64(max(len(times), 1))
	result.GeneratorCPU = used["generator"]
	delete(used, "generator")
	return result
}

func percentiles(times []uint32) (p50, p99 float64) {
	if len(times) == 0 {
		return 0, 0
	}
	slices.Sort(times)
	return float64(times[len(times)/2]), float64(times[min(len(times)-1, len(times)*99/100)])
}

// inParallel calls work for each worker at once and returns what failed first.
func inParallel(workers []*worker, work func(*worker) error) error {
	if work == nil {
		return nil
	}
	var group sync.WaitGroup
	failures := make([]error, len(workers))
	for index, w := range workers {
		group.Go(func() { failures[index] = work(w) })
	}
	group.Wait()
	return errors.Join(first(failures)...)
}

func first(failures []error) []error {
	for _, each := range failures {
		if each != nil {
			return []error{each}
		}
	}
	return nil
}

func named(s settings, number int) string {
	return fmt.Sprintf("%s-%05d", s.names, number)
}

func withQuery(path, query string) string {
	if query == "" {
		return path
	}
	return path + "?" + strings.TrimPrefix(query, "?")
}
