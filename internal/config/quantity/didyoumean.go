package quantity

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
)

// numberError is the error of a text that is not a whole number. The text may come from a
// client, so only Error looks for what was meant.
type numberError string

func (e numberError) Error() string {
	text := fmt.Sprintf("%q is not a whole number", string(e))
	if n := meantNumber(string(e)); n != "" {
		return text + "; write " + n
	}
	if cure := foreign.Ending(string(e)); cure != "" {
		return text + "; " + cure
	}
	return text
}

// durationError is the error of a text that is not a duration, like numberError.
type durationError string

func (e durationError) Error() string {
	if _, err := strconv.ParseInt(string(e), 10, 64); err == nil {
		return fmt.Sprintf("%s has no unit; write %[1]ss for seconds, or %[1]sm for minutes", string(e))
	}
	text := fmt.Sprintf("%q is not a duration", string(e))
	if cure := foreign.Ending(string(e)); cure != "" {
		return text + "; " + cure
	}
	number, unit := numberAndUnit(string(e))
	switch unit = foreign.Meaning(foreign.Unit, unit); {
	case unit == "M":
		return text + "; write " + number + "m for minutes, or " + days(number, 30) + " for months of 30 days"
	case unit == "mo":
		return text + ", as months differ in length; write " + days(number, 30)
	case unit == "y":
		return text + ", as years differ in length; write " + days(number, 365)
	case unit != "" && number+unit != string(e):
		return text + "; write " + number + unit
	}
	if _, err := ParseDuration(digits.ReplaceAllString(string(e), "1")); err == nil {
		return fmt.Sprintf("%q is too long; 106751d is the most", string(e))
	}
	return text + ", such as 90s, 5m or 1d"
}

var (
	digits       = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)
	quantity     = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)? *([A-Za-zµ]+)$`)
	thousands    = regexp.MustCompile(`^[0-9]{1,3}([,_'.][0-9]{3})+$`)
	metricNumber = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)([kKMG])$`)
	rate         = regexp.MustCompile(`^([0-9]+) *(?:r|req|reqs|requests|events)?(?:/|ps$|pm$|ph$)([0-9.]*[A-Za-z]*)$`)
	wordsOfRate  = map[string]bool{"per": true, "every": true, "each": true, "in": true, "a": true, "/": true, "requests": true, "req": true, "events": true}
)

// numberAndUnit returns the number and the unit of a duration. The number is 1 for a unit
// alone. Both are empty for other texts.
func numberAndUnit(text string) (number, unit string) {
	parts := quantity.FindStringSubmatch(text)
	switch {
	case parts == nil:
		return "", ""
	case parts[1] == "":
		return "1", parts[2]
	}
	return parts[1], parts[2]
}

func days(number string, each float64) string {
	n, _ := strconv.ParseFloat(number, 64) // digits only
	return strconv.FormatFloat(n*each, 'f', -1, 64) + "d"
}

// meantNumber returns the whole number that a text was probably meant to be, or nothing.
func meantNumber(text string) string {
	if parts := metricNumber.FindStringSubmatch(text); parts != nil {
		n, _ := strconv.ParseFloat(parts[1], 64) // digits only
		n *= map[string]float64{"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}[parts[2]]
		return wholeNumber(n)
	}
	if thousands.MatchString(text) {
		return strings.NewReplacer(",", "", "_", "", "'", "", ".", "").Replace(text)
	}
	if strings.ContainsAny(text, "eE.") {
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return wholeNumber(n)
		}
	}
	return ""
}

// wholeNumber writes a number, or nothing if it is not a whole one.
func wholeNumber(n float64) string {
	if n < 0 || n != math.Trunc(n) || n > 1<<53 {
		return ""
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// meantDuration returns the text as a duration that Duration takes, or "" for other texts.
func meantDuration(text string) string {
	number, unit := numberAndUnit(text)
	if unit = foreign.Meaning(foreign.Unit, unit); unit != "" {
		if d := number + unit; isDuration(d) {
			return d
		}
		return ""
	}
	if isDuration(text) {
		return text
	}
	return ""
}

// isDuration reports whether a text is a duration with a unit.
func isDuration(text string) bool {
	if isNumber(text) {
		return false
	}
	_, err := Duration(text)
	return err == nil
}

func isNumber(text string) bool {
	_, err := Int(text)
	return err == nil
}

func isDynamic(text string) bool { return strings.Contains(text, "{") }

// LimitText is a limit as it is written.
type LimitText struct{ Max, Window string }

// Meant returns the limit that was probably meant by one that is refused, and what is
// wrong with it.
func (l LimitText) Meant() (meant LimitText, fault string, ok bool) {
	maximum, window := l.Max, l.Window
	if most, per, ok := meantRate(maximum); ok {
		if strings.HasSuffix(maximum, "/") && meantDuration(window) != "" {
			per = meantDuration(window) // 10/ 1m
		}
		return LimitText{most, per}, fmt.Sprintf("%q is a rate", maximum), per != ""
	}
	if isDuration(l.Max) && (isNumber(l.Window) || isDynamic(l.Window)) {
		return LimitText{l.Window, l.Max}, "max and window are in the wrong order", true
	}
	n, err := strconv.ParseFloat(maximum, 64)
	if err != nil || n <= 0 || n == math.Trunc(n) || thousands.MatchString(maximum) || !isDuration(l.Window) {
		return l, "", false
	}
	length, _ := Duration(l.Window)
	for times := 2; times <= 1000; times++ {
		if product := n * float64(times); math.Abs(product-math.Round(product)) < 1e-9 && float64(length)*float64(times) < math.MaxInt64 {
			longer := normalize.Duration(length * time.Duration(times))
			return LimitText{strconv.FormatFloat(math.Round(product), 'f', -1, 64), longer}, fmt.Sprintf("max %q is not a whole number", maximum), true
		}
	}
	return l, "", false
}

// meantRate takes a rate apart, such as 10r/s or 10/1m.
func meantRate(text string) (most, window string, ok bool) {
	parts := rate.FindStringSubmatch(text)
	if parts == nil {
		return "", "", false
	}
	per := parts[2]
	if per == "" {
		per = map[byte]string{'s': "s", 'm': "m", 'h': "h"}[text[len(text)-1]] // of rps, rpm and rph
	}
	return parts[1], meantDuration(per), true
}

// meantWords returns the limit that was probably meant by another number of words than
// two.
func meantWords(words []string) (LimitText, bool) {
	var rest []string
	for _, word := range words {
		if !wordsOfRate[strings.ToLower(word)] {
			rest = append(rest, word)
		}
	}
	if len(rest) == 0 {
		return LimitText{}, false
	}
	if most, window, ok := meantRate(strings.Join(words, "")); ok && window != "" {
		return LimitText{most, window}, true
	}
	if len(rest) < 2 || len(rest) > 3 || !isNumber(rest[0]) || len(rest) == 3 && !isNumber(rest[1]) {
		return LimitText{}, false
	}
	window := meantDuration(strings.Join(rest[1:], ""))
	if window == "" {
		return LimitText{}, false
	}
	return LimitText{rest[0], window}, true
}

// InOneWord returns the two words of a limit that is written as one, such as 100/1m.
func InOneWord(word string) (l LimitText, ok bool) {
	most, window, ok := strings.Cut(word, "/")
	ok = ok && (isNumber(most) || isDynamic(most)) && (isDuration(window) || isDynamic(window))
	return LimitText{most, window}, ok
}

// CheckWords reports another number of words than two in a line of a limit, if it can
// say what was meant.
func CheckWords(option string, words []string) error {
	if len(words) == 2 {
		return nil
	}
	line := strings.Join(append([]string{option}, words...), " ")
	if l, ok := meantWords(words); ok {
		return fmt.Errorf("%s: write %s %s %s", line, option, l.Max, l.Window)
	}
	if len(words) == 3 && strings.Contains(words[2], "{") && isNumber(words[0]) && isDuration(words[1]) {
		return fmt.Errorf("%s: write %s %s %s, and key %s in a line of its own", line, option, words[0], words[1], words[2])
	}
	return nil
}

// MeantDirective returns how the arguments of the directive were probably meant: a zone,
// a key, a number and a window, in this order.
func MeantDirective(args []string) (string, bool) {
	zone, key := "<zone>", "{client_ip}"
	var most, window string
	var texts []string
	for _, arg := range args {
		rateMax, rateWindow, isRate := meantRate(arg)
		switch {
		case isRate && most == "" && window == "":
			most, window = rateMax, rateWindow
		case isNumber(arg) && most == "":
			most = arg
		case isDuration(arg) && window == "":
			window = arg
		default:
			texts = append(texts, arg)
		}
	}
	if most == "" || window == "" || len(texts) == 0 || len(texts) > 2 {
		return "", false
	}
	for _, text := range texts {
		if zone == "<zone>" && !strings.Contains(text, "{") {
			zone = text
		} else {
			key = text
		}
	}
	return fmt.Sprintf("sliding_window %s %s %s %s", zone, key, most, window), true
}
