package failure

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/scripts"
)

// ownCommands are those that a store sends itself, beside what its scripts call. The client sends
// some of them.
var ownCommands = []string{
	"ASKING", "AUTH", "CL.THROTTLE", "CLUSTER", "EVALSHA", "HELLO", "INFO", "PING", "READONLY", "SCRIPT", "SELECT", "SENTINEL",
	"SUBSCRIBE", "TIME",
	"GET-MASTER-ADDR-BY-NAME", "LOAD", "SENTINELS", "SLOTS", // subcommands
}

var (
	// How servers, and the script, quote a command that the server does not know.
	unknownCommand = regexp.MustCompile("^(?:ERR )+unknown (?:sub)?command ['`]([A-Za-z.-]+)['`]")
	// Where a script called one, after what the server says of it.
	inScript = regexp.MustCompile(`(?:script: |f_)([0-9a-f]{40})\b.*?user_script:([0-9]+)`)
)

// ofScripts begins what servers say of an unknown command that a script calls.
const ofScripts = "Unknown Redis command called from"

// lacksCommand reports whether a server says that it does not know a command, or a subcommand.
func lacksCommand(said string) bool {
	text := strings.TrimPrefix(said, "ERR ")
	return strings.HasPrefix(text, "unknown command") || strings.HasPrefix(text, "unknown subcommand") ||
		strings.HasPrefix(text, "ERR unknown command") || strings.Contains(said, ofScripts)
}

// missing returns the command of the store that a server says it does not know, or nothing. No other
// word that a server repeats is passed on.
func missing(said string) string {
	if found := unknownCommand.FindStringSubmatch(said); found != nil {
		name := strings.ToUpper(found[1])
		if slices.Contains(ownCommands, name) || slices.Contains(scripts.Commands(), name) {
			return name
		}
	} else if found := inScript.FindStringSubmatch(said); found != nil {
		if line, err := strconv.Atoi(found[2]); err == nil {
			return strings.Join(scripts.CommandsAt(found[1], line), " or ")
		}
	}
	return ""
}
