package normalize

import (
	"strconv"
	"time"
)

// Duration writes a duration without the units that are zero at its end: 1h rather than 1h0m0s.
func Duration(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return strconv.FormatInt(int64(d/time.Hour), 10) + "h"
	case d%time.Minute == 0:
		return strconv.FormatInt(int64(d/time.Minute), 10) + "m"
	}
	return d.String()
}
