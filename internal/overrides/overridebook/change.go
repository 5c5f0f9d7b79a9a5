package overridebook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Errors of a change.
var (
	ErrChanged = errors.New("the overrides have changed since they were read; list them, and try again")
	ErrMayHold = errors.New("the change may hold all the same; list the overrides before you repeat it")
	ErrFull    = fmt.Errorf("there would be more than %d overrides; delete some, or use limits with placeholders for more customers than that", overrides.MaxRecords)
)

// Change applies other records, here and in the store, and returns them. A version that is not empty must be
// that of the records which edit gets. After an error that wraps ErrMayHold the change may hold; after any other one
// it does not.
func (b *Book) Change(ctx context.Context, version string, edit func([]overrides.Record) ([]overrides.Record, error)) (Copy, error) {
	return b.change(ctx, version, false, edit)
}

// Replace is Change to records that take the place of all, also of those that only other Caddys know.
func (b *Book) Replace(ctx context.Context, version string, records []overrides.Record) (Copy, error) {
	return b.change(ctx, version, true, func([]overrides.Record) ([]overrides.Record, error) { return slices.Clone(records), nil })
}

func (b *Book) change(ctx context.Context, version string, isAll bool, edit func([]overrides.Record) ([]overrides.Record, error)) (Copy, error) {
	b.changes.Lock()
	defer b.changes.Unlock()
	for range 5 {
		err := b.refresh(ctx)
		before, _ := b.Current()
		if err != nil {
			return before, unchangedError{err}
		}
		if version != "" && version != before.Version {
			return before, ErrChanged
		}
		next := Copy{Read: b.clock.Now()}
		live := slices.DeleteFunc(slices.Clone(before.Records), func(r overrides.Record) bool { return r.Expired(next.Read) })
		if next.Records, err = edit(live); err != nil {
			return before, err
		}
		if len(next.Records) > overrides.MaxRecords {
			return before, ErrFull
		}
		next.Past = retired(before, next.Records, next.Read)
		if b.shared == nil {
			next.Version = nextVersion(before.Version, time.Time{})
			if err := b.place.Save(next); err != nil {
				return before, unchangedError{fmt.Errorf("writing to Caddy's storage: %w", err)}
			}
		} else {
			next.Version = nextVersion(before.Version, next.Read)
			stamp(&before, &next, isAll)
			isNews(b.name, next.Version) // the operator's line tells it
			written, err := b.write(ctx, &before, &next)
			if err != nil {
				return before, changeError(err)
			}
			if !written {
				continue
			}
		}
		b.mu.Lock()
		b.install(next)
		b.mu.Unlock()
		_ = b.place.Wait() // notKept tells
		return next, nil
	}
	return Copy{}, ErrChanged
}

// refresh reads the records of the store, or of Caddy's storage if that is where the overrides are.
func (b *Book) refresh(ctx context.Context) error {
	if b.shared != nil {
		return b.look(ctx)
	}
	return b.load(Patience)
}

// changeError says whether a change holds whose write has failed.
func changeError(err error) error {
	if errors.Is(err, window.ErrUnknown) {
		return fmt.Errorf("%w: %w", err, ErrMayHold)
	}
	return unchangedError{err}
}

// unchangedError is the error of a change that does not hold, whatever its cause is.
type unchangedError struct{ error }

func (e unchangedError) Error() string {
	text := e.error.Error() + "; nothing was changed, and the overrides that hold stay in force"
	if errors.Is(e.error, window.ErrUnavailable) && !errors.Is(e.error, window.ErrForeign) { // the store is away
		text += "; repeat it when GET /sliding_window/status says ok"
	}
	return text
}

// Is reports whether target is window.ErrUnavailable. There is no Unwrap: the cause may be true of another call only.
func (unchangedError) Is(target error) bool { return target == window.ErrUnavailable }
