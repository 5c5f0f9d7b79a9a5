package page

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// xTicks returns the texts below the axis.
func (p *Plot) xTicks(x *axis) []text {
	var all []text
	add := func(v float64, name string) {
		all = append(all, text{X: x.at(v), Y: height - bottom + 16, Text: name})
	}
	switch {
	case p.Time:
		step := timeSteps[len(timeSteps)-1]
		for i := len(timeSteps) - 1; i >= 0 && (x.to-x.from)/timeSteps[i].Seconds() <= mostTicks; i-- {
			step = timeSteps[i]
		}
		for v := math.Ceil(x.from/step.Seconds()) * step.Seconds(); v <= x.to; v += step.Seconds() {
			add(v, timeText(v, step))
		}
	case p.LogX:
		for _, v := range logTicks(x.from, x.to) {
			add(v, short(v))
		}
	default:
		for _, v := range evenTicks(x.from, x.to) {
			add(v, short(v))
		}
	}
	return all
}

// day is a day.
const day = 24 * time.Hour

// timeSteps are the distances of times that have a text.
var timeSteps = []time.Duration{
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day, 30 * day, 90 * day, 365 * day,
}

// timeText returns a time of the day, or the day at its beginning.
func timeText(v float64, step time.Duration) string {
	t := time.Unix(int64(v), 0).UTC()
	switch {
	case step >= 30*day:
		return t.Format("Jan 2006")
	case t.Hour() == 0 && t.Minute() == 0:
		return t.Format("Jan 2")
	}
	return t.Format("15:04")
}

// yTicks returns the values beside the axis.
func (p *Plot) yTicks(y *axis) []float64 {
	if p.LogY {
		return append([]float64{0}, logTicks(1, y.to)...)
	}
	return evenTicks(0, y.to)
}

// logTicks returns powers of ten, and their doubles and fives where there are few.
func logTicks(from, to float64) []float64 {
	var all []float64
	steps := []float64{1}
	if to/from < 300 {
		steps = []float64{1, 2, 5}
	}
	for power := math.Pow(10, math.Floor(math.Log10(max(from, 1e-9)))); power <= to; power *= 10 {
		for _, step := range steps {
			if v := power * step; v >= from && v <= to {
				all = append(all, v)
			}
		}
	}
	for len(all) > 2*mostTicks {
		var half []float64
		for i := 0; i < len(all); i += 2 {
			half = append(half, all[i])
		}
		all = half
	}
	return all
}

// evenTicks returns round values at equal distances.
func evenTicks(from, to float64) []float64 {
	unit := math.Pow(10, math.Floor(math.Log10((to-from)/mostTicks)))
	for _, step := range []float64{1, 2, 5, 10} {
		if (to-from)/(unit*step) <= mostTicks {
			unit *= step
			break
		}
	}
	var all []float64
	for i := math.Ceil(from / unit); i*unit <= to*1.0001; i++ {
		all = append(all, i*unit)
	}
	return all
}

// xText returns a value of the axis in full.
func (p *Plot) xText(v float64) string {
	if p.Time {
		return time.Unix(int64(v), 0).UTC().Format("2006-01-02 15:04")
	}
	return Number(v)
}

// yText returns a value in full.
func (p *Plot) yText(v float64) string {
	if p.Share {
		return Percent(v)
	}
	return Number(v)
}

// Percent returns a share of 1 in percent.
func Percent(v float64) string {
	v = math.Round(v*1e9) / 1e9
	digits := 1
	switch {
	case v == 0 || v == 1 || v >= 0.01 && math.Abs(v*100-math.Round(v*100)) < 1e-6:
		digits = 0
	case v < 0.001:
		digits = 3
	case v < 0.01:
		digits = 2
	}
	return strconv.FormatFloat(v*100, 'f', digits, 64) + "%"
}

// Number returns a number with commas between thousands.
func Number(v float64) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if math.Abs(v) >= 1000 {
		s = strconv.FormatFloat(v, 'f', 0, 64)
	}
	whole, fraction, dotted := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if dotted {
		return whole + "." + fraction
	}
	return whole
}

// short returns a number in few characters.
func short(v float64) string {
	for _, unit := range []struct {
		from float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if v >= unit.from {
			divisor := unit.from
			if unit.name == "k" {
				divisor = 1e3
			}
			return strconv.FormatFloat(v/divisor, 'f', -1, 64) + unit.name
		}
	}
	return Number(v)
}
