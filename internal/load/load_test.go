package load

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standard are the options of an example.
func standard() Options {
	o := Options{Floor: 0.3, Ceiling: 1, Recover: time.Minute}
	o.Ranges[CPU] = Range{0.7, 0.95}
	return o
}

// bench is a zone in time of its own.
type bench struct {
	*testing.T
	*Controller
	now     time.Time
	sampler *Sampler
	cpu     func() (float64, error)
	warned  []string
}

// newBench returns one that is past its warm-up, at a CPU of 40 %.
func newBench(t *testing.T, o Options) *bench {
	b := &bench{T: t, now: time.Unix(1_800_000_000, 0)}
	b.sampler = &Sampler{Manual: true, CPU: func() (float64, error) { return b.cpu() }, Memory: func() (float64, error) { return 0.1, nil }}
	b.sampler.Warn = func(s Signal, err error) { b.warned = append(b.warned, s.String()+": "+err.Error()) }
	b.Controller = b.sampler.New(engine.ZoneID{Zone: "zone"}, o)
	b.sampler.Start(b.Controller)
	t.Cleanup(func() { b.sampler.Stop(b.Controller); _ = b.Destruct() })
	b.at(0.4)
	for range 21 {
		b.step()
	}
	return b
}

// at sets the CPU to x.
func (b *bench) at(x float64) { b.cpu = func() (float64, error) { return x, nil } }

// step takes a sample, and returns the factor.
func (b *bench) step() float64 {
	b.sampler.Step(b.now)
	b.now = b.now.Add(Interval)
	return b.Factor()
}

func TestStep(t *testing.T) {
	b := newBench(t, standard())
	b.at(1)
	took := 0
	for b.step() > 0.3 {
		if took++; took > 6 {
			t.Fatalf("after 3 s the factor is %v, want the floor", b.Factor())
		}
	}
	for range 120 {
		if f := b.step(); f != 0.3 {
			t.Fatalf("under pressure the factor is %v, want the floor", f)
		}
	}
	b.at(0.4)
	before, took := b.Factor(), 0
	for b.Factor() < 1 {
		f := b.step()
		if f < before {
			t.Fatalf("after %d samples the factor falls from %v to %v without pressure", took, before, f)
		}
		if took++; f > 0.3+0.7*float64(took)/120+1e-9 {
			t.Fatalf("after %d samples the factor is %v: faster than in a minute", took, f)
		}
		if before = f; took > 130 {
			t.Fatalf("65 s after the pressure the factor is %v, want 1", f)
		}
	}
	t.Logf("back at 1 after %v", time.Duration(took)*Interval)
}

func TestOneSpikeDoesNothing(t *testing.T) {
	b := newBench(t, standard())
	for i := range 40 {
		b.at(0.4)
		if i%2 == 0 {
			b.at(1)
		}
		if f := b.step(); f != 1 {
			t.Fatalf("sample %d: the factor is %v, want 1", i, f)
		}
	}
}

// A sawtooth of 20 points around hi, of many periods, moves the factor by less than 5 % a second
// upwards.
func TestSawtooth(t *testing.T) {
	for _, period := range []int{2, 3, 4, 7, 10, 20, 40, 120} {
		b := newBench(t, standard())
		for i := range 400 {
			before := b.Factor()
			b.at(0.95 - 0.2 + 0.4*float64(i%period)/float64(period-1))
			var factors [2]float64
			for j := range factors { // one second
				factors[j] = b.step()
			}
			if rise := factors[1] - before; rise > 0.05 {
				t.Errorf("period %d, second %d: the factor rises from %v to %v", period, i, before, factors[1])
			}
		}
	}
}

func TestWarmup(t *testing.T) {
	b := &bench{T: t, now: time.Unix(1_800_000_000, 0)}
	b.sampler = &Sampler{Manual: true, CPU: func() (float64, error) { return 1, nil }}
	b.Controller = b.sampler.New(engine.ZoneID{Zone: "zone"}, standard())
	b.sampler.Start(b.Controller)
	for i := range 20 {
		if f := b.step(); f != 1 {
			t.Fatalf("%v after the start the factor is %v, want 1", time.Duration(i)*Interval, f)
		}
	}
	if f := b.step(); f != 0.3 {
		t.Errorf("10 s after the start the factor is %v, want the floor", f)
	}
}

func TestBrokenSensor(t *testing.T) {
	b := newBench(t, standard())
	b.at(1)
	for range 4 {
		b.step()
	}
	for i, broken := range []func() (float64, error){
		func() (float64, error) { return 0, errors.New("no such file") },
		func() (float64, error) { return math.NaN(), nil },
		func() (float64, error) { return -1, nil },
		func() (float64, error) { panic("out of range") },
	} {
		b.cpu = broken
		for range 40 {
			b.step()
		}
		if _, known := b.sampler.Latest(CPU); known {
			t.Errorf("sensor %d: a value is known", i)
		}
	}
	if f := b.Factor(); f != 1 {
		t.Errorf("the factor is %v, want 1", f)
	}
	if len(b.warned) != 1 || b.warned[0] != "cpu: no such file" {
		t.Errorf("warnings %q, want one", b.warned)
	}
}

// A small change is not published in the ten seconds after another one.
func TestDeadband(t *testing.T) {
	b := newBench(t, standard())
	b.at(0.8)
	b.step()
	before := b.step()
	b.at(0.804)
	for i := range 19 {
		if f := b.step(); f != before {
			t.Fatalf("sample %d: the factor is %v, want %v still", i, f, before)
		}
	}
	for range 3 {
		b.step()
	}
	if f := b.Factor(); f >= before || before-f > deadband {
		t.Errorf("after 10 s the factor is %v, want a little below %v", f, before)
	}
	b.at(0.82)
	if b.step(); b.step() >= before-deadband {
		t.Errorf("after a large change the factor is %v", b.Factor())
	}
}

// The steps of the articles: one example passes through all of them.
func TestArticles(t *testing.T) {
	o := Options{Floor: 0.7, Ceiling: 1.2, Recover: time.Minute}
	o.Ranges = [signals]Range{CPU: {0.8, 1}, Memory: {0.85, 0.95}, Latency: {0.5, 1}}
	for _, c := range []struct {
		signal  Signal
		x, want float64
	}{
		{CPU, 0, 1.2},
		{CPU, 0.65, 1},
		{CPU, 0.8, 1},
		{CPU, 0.8 + 0.2*2/3, 0.8},
		{CPU, 1, 0.7},
		{Memory, 0.2125, 1.1},
		{Memory, 0.7, 1},
		{Memory, 0.95, 0.7},
		{Memory, 2, 0.7},
		{Latency, 0.125, 1.1},
		{Latency, 0.3, 1},
		{Latency, 0.5 + 0.5*2/3, 0.8},
	} {
		if got := o.of(c.signal, c.x); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s at %v: factor %v, want %v", c.signal, c.x, got, c.want)
		}
	}
	if got := o.clamp(0.8 * 0.7); got != 0.7 {
		t.Errorf("product below the floor: %v", got)
	}
	if got := o.clamp(1.2 * 1.1); got != 1.2 {
		t.Errorf("product above the ceiling: %v", got)
	}
}

func TestGrowthIsBounded(t *testing.T) {
	o := standard()
	o.Floor, o.Ceiling, o.Recover = 1, 1.2, 10*time.Second
	b := newBench(t, o)
	b.at(0)
	for i := 1; i < 60; i++ {
		if f := b.step(); f > 1+0.2*float64(i)/20+1e-9 || i > 50 && f < 1.19 {
			t.Fatalf("sample %d: factor %v", i, f)
		}
	}
}

func TestLatencies(t *testing.T) {
	for us := int64(0); us < 120_000_000; us += 1 + us/100 {
		d := time.Duration(us) * time.Microsecond
		got := latencyOf(bucketOf(d))
		if off := math.Abs(float64(got - d)); off > 0.032*float64(d) {
			t.Fatalf("%v counts as %v", d, got)
		}
	}
	if b := bucketOf(time.Hour); b != buckets-1 {
		t.Errorf("an hour is in bucket %d", b)
	}
	o := standard()
	o.Ranges[CPU], o.Ranges[Latency] = Range{}, Range{0.2, 1}
	b := newBench(t, o)
	b.cpu = func() (float64, error) { panic("not used") }
	for i := range Client(49) {
		b.Answered(i<<40, 3*time.Second)
	}
	for range 5 {
		if f := b.step(); f != 1 {
			t.Fatalf("49 requests: factor %v, want 1", f)
		}
	}
	b.Answered(49<<40, 3*time.Second)
	if b.step(); b.step() != 0.3 {
		t.Errorf("50 requests: factor %v, want the floor", b.Factor())
	}
	if p, ok := b.Latency(); !ok || p < 2900*time.Millisecond || p > 3100*time.Millisecond {
		t.Errorf("the percentile is %v, %v", p, ok)
	}
	for range 11 { // all that was noted is over
		b.step()
	}
	if p, ok := b.Latency(); ok {
		t.Errorf("after 5 s the percentile is %v", p)
	}
	for b.Factor() < 1 {
		b.step()
	}
	// 10 of 100 that fail change nothing; 11 do.
	for i := range Client(90) {
		b.Answered(i<<40|i, 10*time.Millisecond)
	}
	for i := range Client(10) {
		b.Failed((100+i)<<40 | i)
	}
	for range 3 {
		if f := b.step(); f != 1 {
			t.Fatalf("a tenth fails: factor %v", f)
		}
	}
	b.Failed(200<<40 | 1)
	b.Failed(201<<40 | 2)
	if b.step(); b.step() > 0.35 {
		t.Errorf("more than a tenth fails: factor %v, want the floor", b.Factor())
	}
}

// A zone outlives reloads, and one with other options goes on from it.
func TestInherit(t *testing.T) {
	b := newBench(t, standard())
	b.at(1)
	for range 4 {
		b.step()
	}
	o := standard()
	o.Floor = 0.1
	if z := b.sampler.New(engine.ZoneID{Zone: "zone"}, o); z.Factor() != 0.3 || z.first != b.first {
		t.Errorf("with other options: factor %v, want 0.3, without a warm-up", z.Factor())
	} else {
		_ = z.Destruct()
	}
	o.Floor = 0.5
	if z := b.sampler.New(engine.ZoneID{Zone: "zone"}, o); z.Factor() != 0.5 {
		t.Errorf("with a higher floor: factor %v", z.Factor())
	}
	if z := b.sampler.New(engine.ZoneID{Zone: "another"}, o); z.Factor() != 1 {
		t.Errorf("another zone: factor %v", z.Factor())
	}
}

// The goroutine runs while a zone does, and reads nothing that no zone uses.
func TestSamplerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := 0
		s := &Sampler{CPU: func() (float64, error) { read++; return 0.2, nil }, Memory: func() (float64, error) { t.Error("memory is read"); return 0, nil }}
		z := s.New(engine.ZoneID{Zone: "zone"}, standard())
		defer func() { _ = z.Destruct() }()
		time.Sleep(time.Minute)
		if read != 0 {
			t.Errorf("read %d times before the start", read)
		}
		s.Start(z)
		s.Start(z) // a reload
		time.Sleep(10*time.Second + time.Millisecond)
		s.Stop(z)
		synctest.Wait()
		if x, ok := s.Latest(CPU); read != 20 || !ok || x != 0.2 {
			t.Errorf("read %d times in 10 s: %v, %v", read, x, ok)
		}
		s.Stop(z)
		time.Sleep(time.Minute)
		if read != 20 {
			t.Errorf("read %d times after the end", read)
		}
	})
}

// container is half a CPU and 100 MB.
func container(usage, memory string) fstest.MapFS {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text + "\n")} }
	return fstest.MapFS{
		"proc/self/cgroup":                                        file("1:cpu:/old\n0::/system.slice/caddy.service"),
		"proc/self/mountinfo":                                     file("24 22 0:20 / /proc rw - proc proc rw\n31 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw"),
		"sys/fs/cgroup/cpu.stat":                                  file("usage_usec 999999999"),
		"sys/fs/cgroup/system.slice/cpu.max":                      file("max 100000"),
		"sys/fs/cgroup/system.slice/caddy.service/cpu.max":        file("50000 100000"),
		"sys/fs/cgroup/system.slice/caddy.service/cpu.stat":       file("usage_usec " + usage + "\nuser_usec 1"),
		"sys/fs/cgroup/system.slice/caddy.service/memory.max":     file("100000000"),
		"sys/fs/cgroup/system.slice/memory.max":                   file("max"),
		"sys/fs/cgroup/system.slice/caddy.service/memory.current": file(memory),
		"sys/fs/cgroup/system.slice/caddy.service/memory.stat":    file("anon 5\ninactive_file 20000000"),
	}
}

func TestContainer(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	m := machine{
		now:        func() time.Time { return now },
		hostCPU:    func() (float64, float64, error) { return 0, 0, errors.New("the host is asked") },
		hostMemory: func() (float64, float64, error) { return 0, 0, errors.New("the host is asked") },
		goMemory:   func() goMemory { return goMemory{used: 30e6, garbage: 10e6} },
	}
	files := container("1000000", "110000000")
	m.files = files
	cpu, memory := m.cpu(), m.memory()
	if _, err := cpu(); !errors.Is(err, ErrNotYet) {
		t.Errorf("at first: %v", err)
	}
	now = now.Add(500 * time.Millisecond)
	m.files.(fstest.MapFS)["sys/fs/cgroup/system.slice/caddy.service/cpu.stat"] = container("1237500", "0")["sys/fs/cgroup/system.slice/caddy.service/cpu.stat"]
	// 237.5 ms of the 250 ms that half a CPU has in 500 ms.
	if x, err := cpu(); err != nil || math.Abs(x-0.95) > 1e-6 {
		t.Errorf("CPU: %v, %v, want 0.95", x, err)
	}
	if x, err := memory(); err != nil || math.Abs(x-0.8) > 1e-9 {
		t.Errorf("memory: %v, %v, want 0.8: 110 MB without 20 of files and 10 of garbage", x, err)
	}
	m.goMemory = func() goMemory { return goMemory{used: 30e6, garbage: 10e6, limit: 32e6} }
	if x, err := m.memory()(); err != nil || math.Abs(x-30.0/32) > 1e-9 {
		t.Errorf("memory with GOMEMLIMIT: %v, %v", x, err)
	}
	// Namespaces: the group is what is mounted.
	namespace := fstest.MapFS{
		"proc/self/cgroup":        {Data: []byte("0::/\n")},
		"proc/self/mountinfo":     {Data: []byte("31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n")},
		"sys/fs/cgroup/cpu.max":   {Data: []byte("150000 100000\n")},
		"sys/fs/cgroup/cpu.stat":  {Data: []byte("usage_usec 3000000\n")},
		"sys/fs/cgroup/other.txt": {},
	}
	if l, err := (cgroups{namespace}).cpu(); err != nil || len(l) != 1 || l[0].cores != 1.5 || l[0].used != 3 {
		t.Errorf("in a namespace: %+v, %v", l, err)
	}
	namespace["proc/self/cgroup"].Data = []byte("0::/../../caddy\n")
	if l, err := (cgroups{namespace}).cpu(); err != nil || len(l) != 1 {
		t.Errorf("outside of the namespace: %+v, %v", l, err)
	}
	namespace["proc/self/mountinfo"].Data = []byte("31 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n")
	namespace["proc/self/cgroup"].Data = []byte("0::/docker/abc\n")
	if l, err := (cgroups{namespace}).cpu(); err != nil || len(l) != 1 {
		t.Errorf("a group that is mounted: %+v, %v", l, err)
	}
}

func TestBrokenFiles(t *testing.T) {
	const directory = "sys/fs/cgroup/system.slice/caddy.service/"
	for file, text := range map[string]string{
		"cpu.max": "many", "cpu.stat": "user_usec 5", "memory.max": "-5", "memory.current": "", "memory.stat": "inactive_file x",
	} {
		files := container("1", "2")
		files[directory+file] = &fstest.MapFile{Data: []byte(text)}
		var err error
		if strings.HasPrefix(file, "cpu") {
			_, err = cgroups{files}.cpu()
		} else {
			_, err = cgroups{files}.memory()
		}
		if err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s %q: error %v", file, text, err)
		}
	}
}

// Without limits of a group, the host counts.
func TestHost(t *testing.T) {
	busy, all := 5.0, 10.0
	m := machine{
		files: fstest.MapFS{}, now: time.Now,
		hostCPU:    func() (float64, float64, error) { return busy, all, nil },
		hostMemory: func() (float64, float64, error) { return 900, 1000, nil },
		goMemory:   func() goMemory { return goMemory{used: 10, garbage: 100} },
	}
	cpu := m.cpu()
	_, _ = cpu()
	if _, err := cpu(); !errors.Is(err, ErrNotYet) {
		t.Errorf("when no time has passed: %v", err)
	}
	busy, all = 8, 14
	if x, err := cpu(); err != nil || x != 0.75 {
		t.Errorf("CPU: %v, %v, want 0.75", x, err)
	}
	if x, err := m.memory()(); err != nil || x != 0.8 {
		t.Errorf("memory: %v, %v, want 0.8", x, err)
	}
	m.hostMemory = func() (float64, float64, error) { return 0, 0, errors.New("not here") }
	if _, err := m.memory()(); err == nil {
		t.Error("memory of no host: no error")
	}
}

// The sensors of this machine say something that can be.
func TestSensors(t *testing.T) {
	cpu, memory := Sensors()
	if x, err := memory(); err != nil || x <= 0 || x > 1.5 {
		t.Errorf("memory: %v, %v", x, err)
	}
	_, err := cpu()
	for deadline := time.Now().Add(20 * time.Second); errors.Is(err, ErrNotYet); _, err = cpu() {
		if time.Now().After(deadline) {
			t.Fatal("no CPU time is told in 20 s")
		}
	}
	if err != nil {
		t.Error(err)
	}
	if m := newGoMemory()(); m.used <= 0 || m.garbage < 0 {
		t.Errorf("Go's memory: %+v", m)
	}
}
