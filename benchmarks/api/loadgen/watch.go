package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// watcher follows the collection; each written object holds the moment of its writing.
type watcher struct {
	reader *bufio.Reader
	body   io.Closer
	times  []uint32
	last   int64
}

// delivery counts the events of all watchers. A writer waits until its own has come to all of them.
type delivery struct {
	watchers int64
	total    atomic.Int64
	mutex    sync.Mutex
	missing  map[int64]int
	waiting  map[int64]chan struct{}
}

func (d *delivery) expect(number int64) <-chan struct{} {
	done := make(chan struct{})
	d.mutex.Lock()
	d.missing[number], d.waiting[number] = int(d.watchers), done
	d.mutex.Unlock()
	return done
}

func (d *delivery) arrived(number int64) {
	d.total.Add(1)
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.missing[number]--
	if d.missing[number] == 0 {
		close(d.waiting[number])
		delete(d.missing, number)
		delete(d.waiting, number)
	}
}

// watch opens the watches, then writes: at a fixed rate, or as fast as everybody gets to know.
func watch(s settings, d *dialer) (*sample, error) {
	patch, err := content(s.replacement)
	if err != nil {
		return nil, err
	}
	revision, err := collectionRevision(s, d)
	if err != nil {
		return nil, err
	}
	watchers := make([]*watcher, s.watchers)
	for index := range watchers {
		if watchers[index], err = follow(s, d, revision, index); err != nil {
			return nil, err
		}
	}
	all := &delivery{watchers: int64(s.watchers), missing: map[int64]int{}, waiting: map[int64]chan struct{}{}}
	lost := make(chan error, s.watchers)
	var ending atomic.Bool
	for _, each := range watchers {
		go func() {
			err := each.run(all)
			if ending.Load() {
				err = nil
			}
			lost <- err
		}()
	}
	wait := func(done <-chan struct{}) error {
		select {
		case <-done:
			return nil
		case err := <-lost:
			return fmt.Errorf("a watch ended: %w", err)
		case <-time.After(30 * time.Second):
			return fmt.Errorf("an event did not come to every watcher within 30 s")
		}
	}
	result, err := written(s, d, all, wait, patch)
	ending.Store(true)
	for _, each := range watchers {
		each.body.Close()
	}
	if err != nil {
		return nil, err
	}
	for range watchers {
		<-lost
	}
	var times []uint32
	warm := warmth(s, share(s)) * s.connections
	for _, each := range watchers {
		if len(each.times) != warm+result.Count {
			return nil, fmt.Errorf("%d events came of %d writes", len(each.times), warm+result.Count)
		}
		times = append(times, each.times[warm:]...)
	}
	result.Watchers, result.Deliveries = s.watchers, len(times)
	result.DeliveryP50, result.DeliveryP99 = percentiles(times)
	return result, nil
}

// written measures writes: each is done once every watcher has its event. They go over HTTP/1.1 whatever the watches use.
func written(s settings, d *dialer, all *delivery, wait func(<-chan struct{}) error, patch []byte) (*sample, error) {
	workers := make([]*worker, s.connections)
	for number := range workers {
		connection, err := d.connect()
		if err != nil {
			return nil, err
		}
		workers[number] = &worker{number: number, server: connection}
	}
	var mutex sync.Mutex
	var newest int64
	unique := func() int64 {
		mutex.Lock()
		defer mutex.Unlock()
		newest = max(newest+1, time.Now().UnixNano())
		return newest
	}
	began := time.Now()
	one := func(w *worker, n int) (bool, error) {
		if s.rate > 0 {
			due := began.Add(time.Duration(float64(n*s.connections+w.number) / s.rate * float64(time.Second)))
			time.Sleep(time.Until(due))
			w.start = time.Now()
		}
		object, err := chosen(s, w, n, w.number*share(s)+n%share(s))
		if err != nil {
			return false, err
		}
		number := unique()
		done := all.expect(number)
		name := named(s, object)
		body := filled(patch, name, number)
		if _, err := send(w, http.MethodPatch, s.path+"/"+name, mergePatch, body, false, http.StatusOK); err != nil {
			return false, err
		}
		return false, wait(done)
	}
	return loopOver(s, d, workers, job{step: one, warm: warmth(s, share(s))})
}

func collectionRevision(s settings, d *dialer) (string, error) {
	connection, err := d.connect()
	if err != nil {
		return "", err
	}
	defer connection.secure.Close()
	answer, err := send(&worker{server: connection, own: asMaster(s)}, http.MethodGet, s.path+"?limit=1", "", nil, true, http.StatusOK)
	if err != nil {
		return "", err
	}
	const key = `"resourceVersion":"`
	at := bytes.Index(answer, []byte(key))
	revision, _, found := strings.Cut(string(answer[at+len(key):]), `"`)
	if at < 0 || !found {
		return "", fmt.Errorf("no resourceVersion in %.300s", answer)
	}
	return revision, nil
}

func follow(s settings, d *dialer, revision string, index int) (*watcher, error) {
	query := "watch=1&resourceVersion=" + revision + "&timeoutSeconds=3000"
	if s.selector != "" {
		query += "&" + s.selector
	}
	body, err := d.stream(withQuery(s.path, query), watching(s, index))
	if err != nil {
		return nil, err
	}
	return &watcher{reader: bufio.NewReaderSize(body, 128<<10), body: body}, nil
}

// run reads events until the connection ends. Each object's events come in the order of its writes; only that is checked beside the count.
func (w *watcher) run(all *delivery) error {
	for {
		line, err := w.reader.ReadSlice('\n')
		if err != nil {
			return err
		}
		if bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) {
			continue
		}
		at := found(line)
		if at < 0 || !bytes.HasPrefix(line, []byte(`{"type":"MODIFIED"`)) {
			return fmt.Errorf("unexpected event %.300s", line)
		}
		number, err := strconv.ParseInt(string(line[at+1:at+1+sequenceWidth]), 10, 64)
		if err != nil {
			return err
		}
		w.times = append(w.times, uint32(max(time.Now().UnixNano()-number, 0)/1000))
		all.arrived(number)
	}
}
