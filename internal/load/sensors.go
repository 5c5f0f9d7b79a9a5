package load

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"runtime/metrics"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/mem"
)

// Sensors returns the sensors of this process: of its control group where that has limits, and of
// the host where it has none.
func Sensors() (cpu, memory Sensor) {
	m := machine{files: os.DirFS("/"), now: time.Now, hostCPU: hostCPU, hostMemory: hostMemory, goMemory: newGoMemory()}
	return m.cpu(), m.memory()
}

// machine is what sensors look at.
type machine struct {
	files      fs.FS // of the root directory
	now        func() time.Time
	hostCPU    func() (busy, all float64, err error) // seconds, ever
	hostMemory func() (used, all float64, err error)
	goMemory   func() goMemory
}

// cpu returns a sensor of the share of CPU time that was used since it was last read.
func (m machine) cpu() Sensor {
	type point struct{ used, all float64 }
	var last map[string]point // by the directory of the group; "" is the host
	return func() (float64, error) {
		limits, err := cgroups{m.files}.cpu()
		if err != nil {
			return 0, err
		}
		now, clock := make(map[string]point), float64(m.now().UnixNano())/1e9
		for _, l := range limits {
			now[l.directory] = point{l.used / l.cores, clock}
		}
		if len(limits) == 0 {
			busy, all, err := m.hostCPU()
			if err != nil {
				return 0, err
			}
			now[""] = point{busy, all}
		}
		most, known := 0.0, false
		for name, to := range now {
			if from, ok := last[name]; ok && to.all > from.all {
				most, known = max(most, (to.used-from.used)/(to.all-from.all)), true
			}
		}
		last = now
		if !known {
			return 0, ErrNotYet
		}
		return most, nil
	}
}

// memory returns a sensor of the largest share of a memory limit that is used. What the garbage
// collector, or the kernel, can free at once does not count.
func (m machine) memory() Sensor {
	return func() (float64, error) {
		own, most := m.goMemory(), 0.0
		if own.limit > 0 {
			most = own.used / own.limit
		}
		limits, err := cgroups{m.files}.memory()
		if err != nil {
			return 0, err
		}
		for _, l := range limits {
			most = max(most, (l.used-own.garbage)/l.max)
		}
		if len(limits) > 0 {
			return most, nil
		}
		used, all, err := m.hostMemory()
		if err == nil && all <= 0 {
			err = errors.New("the host reports no memory size")
		}
		if err != nil && own.limit > 0 {
			return most, nil
		}
		if err != nil {
			return 0, err
		}
		return max(most, (used-own.garbage)/all), nil
	}
}

func hostCPU() (busy, all float64, err error) {
	times, err := cpu.Times(false)
	if err != nil {
		return 0, 0, err
	}
	if len(times) == 0 {
		return 0, 0, errors.New("the host reports no CPU")
	}
	t := times[0]
	idle := t.Idle + t.Iowait
	busy = t.User + t.Nice + t.System + t.Irq + t.Softirq + t.Steal // user time has that of guests
	return busy, busy + idle, nil
}

func hostMemory() (used, all float64, err error) {
	m, err := mem.VirtualMemory()
	if err != nil {
		return 0, 0, err
	}
	return float64(m.Total) - float64(m.Available), float64(m.Total), nil
}

// goMemory is what the Go runtime says of its memory, in bytes.
type goMemory struct {
	used    float64 // without garbage
	garbage float64 // what a collection would free, and what is free already
	limit   float64 // GOMEMLIMIT; 0: none
}

// newGoMemory returns what reads it.
func newGoMemory() func() goMemory {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/gomemlimit:bytes"},
	}
	return func() goMemory {
		metrics.Read(samples)
		n := func(i int) float64 { return float64(samples[i].Value.Uint64()) }
		total, objects, live := n(0)-n(1), n(3), n(4)
		if live == 0 { // nothing was collected yet
			live = objects
		}
		m := goMemory{garbage: n(2) + max(0, objects-live), limit: n(5)}
		m.used = total - m.garbage
		if m.limit >= math.MaxInt64 {
			m.limit = 0
		}
		return m
	}
}
