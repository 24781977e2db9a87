package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// warmRequests is how many of its drawn requests a worker does before the clock starts.
const warmRequests = 8

// request is for the object of a number, and has header fields of its own, as they go onto the wire.
type request struct {
	object int
	own    string
}

// drawn reads requests, and gives each worker those for the objects that are its own, so that no write meets another.
func drawn(file string, connections int) ([][]request, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	found := make([][]request, connections)
	lines := bufio.NewScanner(opened)
	for lines.Scan() {
		number, fields, _ := strings.Cut(lines.Text(), "\t")
		object, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		own := strings.ReplaceAll(fields, "\t", "\r\n") + "\r\n"
		found[object%connections] = append(found[object%connections], request{object, own})
	}
	return found, lines.Err()
}

// chosen returns the number of the object that a worker's n-th request is for, and puts the request's own fields in force; without
// requests that were drawn it is the usual one.
func chosen(s settings, w *worker, n, usual int) (int, error) {
	if s.drawn == nil {
		return usual, nil
	}
	if n >= len(s.drawn[w.number]) {
		return 0, fmt.Errorf("%s has no more than %d requests for a worker", s.requests, n)
	}
	next := s.drawn[w.number][n]
	w.own = next.own
	return next.object, nil
}

// watching returns the fields of a watch: those of the last requests, which the writers do not come to.
func watching(s settings, index int) string {
	if s.drawn == nil {
		return ""
	}
	all := s.drawn[index%s.connections]
	return all[len(all)-1-index/s.connections].own
}

// asMaster returns the fields with which the generator sees what there is: nobody is asked whether it may.
func asMaster(s settings) string {
	if s.drawn == nil {
		return ""
	}
	return "X-Remote-User: master\r\nX-Remote-Group: system:masters\r\n"
}

// once does each drawn request a single time.
func once(s settings, work job) job {
	return job{prepare: work.prepare, finite: true, step: func(w *worker, n int) (bool, error) {
		if n >= len(s.drawn[w.number]) {
			return true, nil
		}
		return work.step(w, n)
	}}
}

// owned returns the numbers of the objects that a worker writes.
func owned(s settings, w *worker) []int {
	var numbers []int
	if s.drawn == nil {
		for n := range share(s) {
			numbers = append(numbers, w.number*share(s)+n)
		}
		return numbers
	}
	for number := w.number; number < s.objects; number += s.connections {
		numbers = append(numbers, number)
	}
	return numbers
}

// share is how many objects each worker writes, where none are drawn.
func share(s settings) int {
	return max(s.objects/s.connections, 1)
}

// warmth returns how many steps of each worker are not measured: the usual ones, or a few, because who may do what is known by then.
func warmth(s settings, usual int) int {
	if s.drawn == nil {
		return usual
	}
	return warmRequests
}
