package suggest

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
)

// NoOption refuses the option at the cursor of d, which there is not in a block, and names the one that was
// probably meant, or all of them. Of says whose block it is, such as " of settle".
func NoOption(d *caddyfile.Dispenser, of string, options []string) error {
	if err := noBlock(d); err != nil {
		return err
	}
	return d.Errf("unrecognized subdirective %q%s; %s", d.Val(), of, Cure(d.Val(), options))
}

// Cure says which of the options to write in place of one that there is not: the one that was probably meant, or
// all of them.
func Cure(option string, options []string) string {
	if meant := foreign.Nearest(option, options); meant != "" {
		return "write " + meant
	}
	return "use " + oneOf(options)
}

// oneOf returns words as a choice, such as "zset, log or slices".
func oneOf[T ~string](words []T) string {
	text := string(words[0])
	for i, word := range words[1:] {
		if i == len(words)-2 {
			text += " or " + string(word)
		} else {
			text += ", " + string(word)
		}
	}
	return text
}

// noBlock refuses a brace where an option begins: the option before it has no block. It returns nil for
// anything else.
func noBlock(d *caddyfile.Dispenser) error {
	if d.Val() != "{" {
		return nil
	}
	words := upToCursor(d)
	if len(words) == 1 {
		return d.Err("a block has to follow an option; take out { and what belongs to it")
	}
	return d.Errf("%s has no block; take out { and what belongs to it", words[0])
}
