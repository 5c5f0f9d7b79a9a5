// Package enforce says of which keys a zone denies requests, and makes Caddys that share a store agree on it.
package enforce

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// Percentages of the keys whose requests a zone may deny. A zone that is exempt does not count requests either. One that marks them
// decides on all as with All, and later handlers do what they want with that.
const (
	All    = 100
	None   = 0
	Exempt = -1
	Mark   = -2
)

// Percent returns the percentage of keys that a word enforces. The sign may be left out, except where the number may mean off
// or on.
func Percent(word string) (percent int64, err error) {
	switch word {
	case "", control.EnforceOn:
		return All, nil
	case control.EnforceShadow:
		return None, nil
	case control.EnforceMark:
		return Mark, nil
	}
	number, isPercentage := strings.CutSuffix(word, "%")
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err == nil && !isPercentage && n == 0:
		return 0, fmt.Errorf("enforce %q is unknown; write shadow to deny no request", word)
	case err == nil && !isPercentage && n == 1:
		return 0, fmt.Errorf("enforce %q is unknown; write on, or 1%% for one key of a hundred", word)
	case err == nil && n == 0:
		return 0, fmt.Errorf("enforce %s: must be from 1%% to 100%%; write shadow to deny no request", word)
	case err == nil && (n < 1 || n > 100):
		return 0, fmt.Errorf("enforce %s: must be from 1%% to 100%%", word)
	case err == nil:
		return n, nil
	case isPercentage:
		return 0, fmt.Errorf("enforce %s: must be a whole percentage, such as 25%%", word)
	}
	if cure := foreign.Cure("enforce", word); cure != "" {
		return 0, fmt.Errorf("enforce %q is unknown; %s", word, cure)
	}
	return 0, fmt.Errorf("enforce %q is unknown; use one of on, shadow, mark, or a percentage such as 25%%", word)
}

// Word returns how a percentage is written.
func Word(percent int64) string {
	switch percent {
	case All:
		return control.EnforceOn
	case None:
		return control.EnforceShadow
	case Exempt:
		return control.EnforceExempt
	case Mark:
		return control.EnforceMark
	}
	return strconv.FormatInt(percent, 10) + "%"
}

// IsEnforced reports whether a key is one of a percentage of a zone's keys. The result is the same on every instance.
// Raising the percentage only adds keys. A client that chooses its key can choose one that is not enforced.
func IsEnforced(zone, key string, percent int64) bool {
	var room [128]byte
	text := append(room[:0], zone...)
	text = append(text, 0)
	sum := sha256.Sum256(append(text, key...))
	place, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:8]), 100)
	return int64(place) < percent
}
