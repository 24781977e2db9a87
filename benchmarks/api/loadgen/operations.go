package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"time"
)

const (
	plainJSON  = "application/json"
	mergePatch = "application/merge-patch+json"
	applyPatch = "application/apply-patch+yaml"
)

// sequenceWidth is that of every number that is written into objects, so that their size never changes.
const sequenceWidth = 19

// A sequence is found in an answer by its first letter and its width: no JSON is parsed here.
func sequence(number int64) []byte {
	return fmt.Appendf(nil, "q%0*d", sequenceWidth, number)
}

func operation(s settings) (job, error) {
	template, err := content(s.template)
	if err != nil {
		return job{}, err
	}
	patch, err := content(s.replacement)
	if err != nil {
		return job{}, err
	}
	switch s.operation {
	case "seed":
		return job{step: made(s, template, s.objects), finite: true}, nil
	case "create":
		return job{step: made(s, template, 1<<30), warm: 1}, nil
	case "delete":
		return job{step: deleted(s), finite: true}, nil
	case "get":
		return job{step: gotten(s), warm: warmth(s, s.objects)}, nil
	case "list":
		return job{step: listed(s), warm: 1}, nil
	case "update":
		return updated(s), nil
	case "patch":
		return job{step: patched(s, patch, mergePatch, s.query), warm: warmth(s, share(s))}, nil
	case "apply":
		prepare := applied(s, template)
		return job{prepare: prepare, step: patched(s, template, applyPatch, s.query), warm: share(s)}, nil
	}
	return job{}, fmt.Errorf("no operation is called %q", s.operation)
}

func content(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	return os.ReadFile(file)
}

func filled(template []byte, name string, number int64) []byte {
	template = bytes.ReplaceAll(template, []byte("@NAME@"), []byte(name))
	template = bytes.ReplaceAll(template, []byte("@SHARD@"), []byte(name[len(name)-2:]))
	return bytes.ReplaceAll(template, []byte("@SEQUENCE@"), sequence(number))
}

// send does one exchange and fails on any code but the wanted ones.
func send(w *worker, method, path, contentType string, body []byte, keep bool, wanted ...int) ([]byte, error) {
	status, answer, size, err := w.server.exchange(method, path, w.own, contentType, body, keep)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	for _, each := range wanted {
		if status == each {
			w.bytes += size
			return answer, nil
		}
	}
	return nil, fmt.Errorf("%s %s: status %d: %.600s", method, path, status, answer)
}

// made creates objects: of a fixed number of names, each worker takes its share; a run without end numbers them on.
func made(s settings, template []byte, number int) step {
	path := withQuery(s.path, s.query)
	return func(w *worker, n int) (bool, error) {
		index := w.number + n*s.connections
		if index >= number {
			return true, nil
		}
		_, err := send(w, http.MethodPost, path, plainJSON, filled(template, named(s, index), int64(index)), false, http.StatusCreated)
		return false, err
	}
}

// deleted deletes what made made, and tolerates what it did not come to make.
func deleted(s settings) step {
	return func(w *worker, n int) (bool, error) {
		index := w.number + n*s.connections
		if index >= s.objects {
			return true, nil
		}
		_, err := send(w, http.MethodDelete, s.path+"/"+named(s, index), "", nil, false, http.StatusOK, http.StatusNotFound)
		return false, err
	}
}

func gotten(s settings) step {
	return func(w *worker, n int) (bool, error) {
		number, err := chosen(s, w, n, (w.number*31+n)%s.objects)
		if err != nil {
			return false, err
		}
		path := s.path + "/" + named(s, number)
		_, err = send(w, http.MethodGet, withQuery(path, s.query), "", nil, false, http.StatusOK)
		return false, err
	}
}

// listed lists, and counts the objects of the first answer: every object has one uid.
func listed(s settings) step {
	path := withQuery(s.path, s.query)
	return func(w *worker, n int) (bool, error) {
		answer, err := send(w, http.MethodGet, path, "", nil, n == 0, http.StatusOK)
		if err == nil && n == 0 && s.objects > 0 {
			if found := bytes.Count(answer, []byte(`"uid":`)); found != s.objects {
				err = fmt.Errorf("the list has %d objects, not %d", found, s.objects)
			}
		}
		return false, err
	}
}

// updated replaces objects by what the last answer said with one number changed, as a controller does.
func updated(s settings) job {
	last := make([]map[int][]byte, s.connections)
	prepare := func(w *worker) error {
		last[w.number] = map[int][]byte{}
		w.own = asMaster(s)
		for _, number := range owned(s, w) {
			answer, err := send(w, http.MethodGet, s.path+"/"+named(s, number), "", nil, true, http.StatusOK)
			if err != nil {
				return err
			}
			last[w.number][number] = answer
		}
		return nil
	}
	return job{prepare: prepare, warm: warmth(s, share(s)), step: func(w *worker, n int) (bool, error) {
		number, err := chosen(s, w, n, w.number*share(s)+n%share(s))
		if err != nil {
			return false, err
		}
		path, old := s.path+"/"+named(s, number), last[w.number][number]
		written, err := renumbered(old, time.Now().UnixNano())
		if err != nil {
			return false, err
		}
		answer, err := send(w, http.MethodPut, withQuery(path, s.query), plainJSON, written, true, http.StatusOK)
		if err == nil && bytes.Equal(answer, old) {
			err = fmt.Errorf("PUT of %s changed nothing", path)
		}
		last[w.number][number] = answer
		return false, err
	}}
}

// renumbered puts a new number where the object has its sequence.
func renumbered(object []byte, number int64) ([]byte, error) {
	at := found(object)
	if at < 0 {
		return nil, fmt.Errorf("no sequence in %.300s", object)
	}
	return bytes.ReplaceAll(object, object[at:at+1+sequenceWidth], sequence(number)), nil
}

// marker begins the annotation that holds the sequence.
var marker = []byte(`example.com/0-sequence":"q`)

// found returns where the sequence of an object begins, -1 if it has none.
func found(object []byte) int {
	at := bytes.Index(object, marker)
	if at < 0 || at+len(marker)+sequenceWidth > len(object) {
		return -1
	}
	return at + len(marker) - 1
}

func patched(s settings, template []byte, contentType, query string) step {
	return func(w *worker, n int) (bool, error) {
		number, err := chosen(s, w, n, w.number*share(s)+n%share(s))
		if err != nil {
			return false, err
		}
		name := named(s, number)
		body := filled(template, name, time.Now().UnixNano())
		_, err = send(w, http.MethodPatch, withQuery(s.path+"/"+name, query), contentType, body, false, http.StatusOK)
		return false, err
	}
}

// applied makes the objects that will be applied to, so that the measured ones find something.
func applied(s settings, template []byte) func(*worker) error {
	return func(w *worker) error {
		for _, number := range owned(s, w) {
			name := named(s, number)
			path := withQuery(s.path+"/"+name, s.query)
			if _, err := send(w, http.MethodPatch, path, applyPatch, filled(template, name, 0), false, http.StatusOK, http.StatusCreated); err != nil {
				return err
			}
		}
		return nil
	}
}

// handshakes asks for one object over a new connection each time.
func handshakes(s settings, d *dialer) (*sample, error) {
	connect := func(w *worker, n int) (bool, error) {
		connection, err := d.connect()
		if err != nil {
			return false, err
		}
		defer connection.secure.Close()
		if state := connection.secure.ConnectionState(); state.DidResume || state.Version != 0x0304 {
			return false, fmt.Errorf("the handshake was resumed, or is not of TLS 1.3")
		}
		w.server = connection
		return gotten(s)(w, n)
	}
	workers := make([]*worker, s.connections)
	for number := range workers {
		workers[number] = &worker{number: number}
	}
	return loopOver(s, d, workers, job{step: connect, warm: s.objects / s.connections})
}
