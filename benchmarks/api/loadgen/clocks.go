package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks a second of the times in /proc/PID/stat: the same on every Linux.
const ticks = 100

// clocks knows how much processor time some processes had used when it was made.
type clocks struct {
	order  []string
	pids   map[string]string
	before map[string]float64
}

func newClocks(pids string) (*clocks, error) {
	c := &clocks{pids: map[string]string{"generator": "self"}, before: map[string]float64{}}
	for pair := range strings.SplitSeq(pids, ",") {
		if name, pid, found := strings.Cut(pair, "="); found {
			c.order = append(c.order, name)
			c.pids[name] = pid
		}
	}
	for name, pid := range c.pids {
		used, err := processorSeconds(pid)
		if err != nil {
			return nil, fmt.Errorf("processor time of %s: %w", name, err)
		}
		c.before[name] = used
	}
	return c, nil
}

// used returns the seconds since then, of all threads of each process.
func (c *clocks) used() map[string]float64 {
	result := map[string]float64{}
	for name, pid := range c.pids {
		now, err := processorSeconds(pid)
		if err != nil {
			now = c.before[name]
		}
		result[name] = max(now-c.before[name], 0)
	}
	return result
}

// until returns once a sample is long enough, or the work is over.
func (c *clocks) until(s settings, began time.Time, finished <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-finished:
			return
		case <-tick.C:
		}
		passed := time.Since(began).Seconds()
		enough := len(c.order) == 0 || c.used()[c.order[0]] >= s.cpu
		if (passed >= s.seconds && enough) || passed >= s.longest {
			return
		}
	}
}

func processorSeconds(pid string) (float64, error) {
	content, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	user, err := strconv.Atoi(string(fields[11]))
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(string(fields[12]))
	return float64(user+system) / ticks, err
}
