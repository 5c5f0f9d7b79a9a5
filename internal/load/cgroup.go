package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// cgroups reads the limits of the process's control group, version 2, and of those around it.
type cgroups struct {
	files fs.FS // of the root directory
}

// directories returns those of the process's group and of all around it, innermost first; none if
// the process is in no group of version 2.
func (c cgroups) directories() []string {
	own := c.own()
	if own == "" {
		return nil
	}
	mounts, err := fs.ReadFile(c.files, "proc/self/mountinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		root, point := fields[3], strings.TrimPrefix(fields[4], "/")
		inside, ok := strings.CutPrefix(own, strings.TrimSuffix(root, "/"))
		if !ok || strings.HasPrefix(inside, "/..") {
			inside = "/" // the group itself is what is mounted
		}
		var all []string
		for {
			all = append(all, path.Join(point, inside))
			if inside == "/" || inside == "" || inside == "." {
				return all
			}
			inside = path.Dir(inside)
		}
	}
	return nil
}

// own returns the path of the process's group in its hierarchy.
func (c cgroups) own() string {
	text, err := fs.ReadFile(c.files, "proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return group
		}
	}
	return ""
}

// cpuLimit is a group that may use some CPU time only.
type cpuLimit struct {
	directory string
	cores     float64
	used      float64 // seconds of CPU time, ever
}

// cpu returns the groups with a quota.
func (c cgroups) cpu() ([]cpuLimit, error) {
	var all []cpuLimit
	for _, directory := range c.directories() {
		text, err := fs.ReadFile(c.files, path.Join(directory, "cpu.max"))
		if errors.Is(err, fs.ErrNotExist) { // that of the root, or without the controller
			continue
		}
		if err != nil {
			return nil, err
		}
		fields := strings.Fields(string(text))
		if len(fields) != 2 {
			return nil, fmt.Errorf("%s/cpu.max: %q is not a quota and a period", directory, text)
		}
		if fields[0] == "max" {
			continue
		}
		quota, err1 := strconv.ParseFloat(fields[0], 64)
		period, err2 := strconv.ParseFloat(fields[1], 64)
		if err1 != nil || err2 != nil || quota <= 0 || period <= 0 {
			return nil, fmt.Errorf("%s/cpu.max: %q is not a quota and a period", directory, text)
		}
		used, err := c.stat(path.Join(directory, "cpu.stat"), "usage_usec")
		if err != nil {
			return nil, err
		}
		all = append(all, cpuLimit{directory, quota / period, used / 1e6})
	}
	return all, nil
}

// memoryLimit is a group that may use some memory only.
type memoryLimit struct {
	max  float64
	used float64 // without files that can be dropped
}

// memory returns the groups with a limit.
func (c cgroups) memory() ([]memoryLimit, error) {
	var all []memoryLimit
	for _, directory := range c.directories() {
		most, err := c.number(path.Join(directory, "memory.max"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errMax) {
			continue
		}
		if err != nil {
			return nil, err
		}
		used, err := c.number(path.Join(directory, "memory.current"))
		if err != nil {
			return nil, err
		}
		files, err := c.stat(path.Join(directory, "memory.stat"), "inactive_file")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		all = append(all, memoryLimit{max(1, most), max(0, used-files)})
	}
	return all, nil
}

var errMax = errors.New("no limit")

// number reads a file of one number, or of the word max.
func (c cgroups) number(name string) (float64, error) {
	text, err := fs.ReadFile(c.files, name)
	if err != nil {
		return 0, err
	}
	word := string(bytes.TrimSpace(text))
	if word == "max" {
		return 0, errMax
	}
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a number", name, word)
	}
	return float64(n), nil
}

// stat reads a number of a file with names and numbers.
func (c cgroups) stat(name, field string) (float64, error) {
	text, err := fs.ReadFile(c.files, name)
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		word, value, _ := strings.Cut(lines.Text(), " ")
		if word != field {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %s: %q is not a number", name, field, value)
		}
		return float64(n), nil
	}
	return 0, fmt.Errorf("%s: no %s", name, field)
}
