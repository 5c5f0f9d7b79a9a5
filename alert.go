package slidingwindow

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/alert"
)

// Alert says from when on a zone denies so much that an operator should know.
//
// When it fires, and when it is resolved, the log has a line, and Caddy's events app an event:
// sliding_window_alert and sliding_window_alert_resolved. It is resolved when half of the share
// is denied or less, when no request has come for `over`, or fewer than `min` in each `over`
// for as long.
type Alert struct {
	// The share of requests that are denied, from which on the alert fires: a percentage above 0%,
	// up to 100%. Those that `on_error deny` refuses count as denied, and those of `enforce shadow`
	// do not count. Default: 10%.
	Denied string `json:"denied,omitempty"`

	// The time over which the share is taken, from 10s to 1h. Default: 1m.
	Over Value `json:"over,omitempty"`

	// Requests in that time, without which the share says little: also for a zone that has just
	// started, of which all that has come counts. 1 or more. Default: 100.
	Min Value `json:"min,omitempty"`
}

const (
	defaultAlertDenied = "10%"
	defaultAlertOver   = time.Minute
	defaultAlertMin    = 100
	shortestAlert      = 10 * time.Second
	longestAlert       = time.Hour
)

// rule returns the alert as it is watched for; nil for none. It returns an error about what is wrong.
func (a *Alert) rule() (*alert.Rule, error) {
	if a == nil {
		return nil, nil
	}
	r := &alert.Rule{Over: defaultAlertOver, Least: defaultAlertMin}
	var err error
	if r.Ratio, err = parsePercentage(a.Denied); err != nil {
		return nil, err
	}
	if a.Over != "" {
		if r.Over, err = a.Over.duration(); err != nil {
			return nil, fmt.Errorf("alert: over: %w", err)
		}
	}
	if r.Over < shortestAlert || r.Over > longestAlert {
		return nil, fmt.Errorf("alert: over %s: must be from %s to %s", a.Over, normalize.Duration(shortestAlert), normalize.Duration(longestAlert))
	}
	if a.Min != "" {
		if r.Least, err = a.Min.int(); err != nil {
			return nil, fmt.Errorf("alert: min %w", err)
		}
	}
	if r.Least < 1 {
		return nil, fmt.Errorf("alert: min %s: must be 1 or more", a.Min)
	}
	return r, nil
}

// parsePercentage reads the option denied, and returns a share from 0 to 1.
func parsePercentage(text string) (float64, error) {
	if text == "" {
		text = defaultAlertDenied
	}
	number, isPercentage := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("alert: denied %q is not a percentage; write one, such as %s", text, defaultAlertDenied)
	case !isPercentage:
		return 0, fmt.Errorf("alert: denied %s: the sign is missing; write a percentage, such as %s", text, defaultAlertDenied)
	case !(percent > 0 && percent <= 100): // NaN, too
		return 0, fmt.Errorf("alert: denied %s: must be above 0%% and at most 100%%", text)
	}
	return percent / 100, nil
}

// plain returns a with values written in one way and without those that are the default. It has
// been checked.
func (a *Alert) plain() *Alert {
	p := *a
	p.Denied = unless(string(Value(p.Denied).plainPercent()), defaultAlertDenied)
	p.Over = unless(p.Over.canonicalDuration(), canonicalDuration(defaultAlertOver))
	p.Min = unless(p.Min.canonicalInt(), Value(strconv.Itoa(defaultAlertMin)))
	return &p
}
