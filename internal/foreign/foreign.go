// Package foreign is the dictionary of the words that other products use: rate limiters, clients of Redis and
// servers. It says what to write here.
package foreign

import (
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/nearest"
)

// Places where a word is written. The places of a word that is the value of an option have the name of the option.
const (
	Option      = "option"       // of sliding_window or a zone
	Settle      = "settle"       // an option of it
	Load        = "load"         // an option of it
	Redis       = "store redis"  // an option of it
	Memory      = "store memory" // an option of it
	Store       = "store"
	Algorithm   = "algorithm"
	Max         = "max" // of a limit
	Placeholder = "placeholder"
	Unit        = "unit" // of a duration
)

const clientIP = "http.vars.client_ip"

// table has the words by place, and by what to write. The words are in lower case without _ and -, or to be taken
// as they are. A placeholder that ends in a dot takes a word of the operator's.
var table = map[string]map[string]string{
	Option: {
		"write store redis in sliding_window, or in the global option sliding_window": "distributed",
		"take it out: each request asks the store":                                    "readinterval",
		"take it out: each request is counted at once":                                "writeinterval",
		"take it out: keys expire by themselves":                                      "purgeage sweepinterval",
		"write store memory or store redis":                                           "storage backend",
		"take it out: no request is delayed":                                          "nodelay delay",
		"write limit <max> <window> in a zone":                                        "rate average requests max period maxevents ratelimit ratelimits",
		"write enforce shadow in a zone":                                              "dryrun shadow reportonly logonly",
		"write match { not client_ip <address> ... } in a zone":                       "whitelist allowlist allow exclude exempt skip bypass",
		"write match { client_ip <address> ... } and limit 0 1m in a zone":            "blacklist blocklist denylist deny ban",
		"write handle_errors 429 { respond <text> } in the site":                      "message body response respond errormessage",
		"write status <code> outside of the zone":                                     "statuscode code responsecode",
		"write on_error allow or on_error deny":                                       "failopen failclosed failuremode",
	},
	Settle: {
		"write usage openai":    "openai",
		"write usage anthropic": "anthropic claude",
		"write json <path>":     "path field",
		"write max <units>":     "limit most",
	},
	Load: {
		"take it out: the factors of all signals are multiplied": "combine",
	},
	Algorithm: {
		"write gcra": "tokenbucket leakybucket bucket",
		"take algorithm out: every window slides":                                         "slidingwindow slidinglog slidingwindowlog exact default",
		"slices { weighted } is the nearest, and take algorithm out for an exact limit":   "fixedwindow fixed window",
		"write slices { weighted }, and take algorithm out for an exact limit":            "slidingwindowcounter slidingcounter counter",
		"write slices { count 60 }, or another option of slices for how exact it must be": "approximate buckets",
	},
	"on_error": {
		"write local": "fallback memory inmemory degrade",
		"write allow": "open failopen pass ignore skip on true",
		"write deny":  "closed failclosed block reject error fail off false",
	},
	"empty_key": {
		"write skip":   "allow ignore pass exempt",
		"write deny":   "reject block error forbid",
		"write shared": "count same one",
	},
	"headers": {
		"write ietf":   "draft standard ratelimit on true rfc",
		"write legacy": "xratelimit old github",
		"write none":   "off false no",
		"write both":   "all",
	},
	"enforce": {
		"write shadow": "off false no none dryrun shadowmode observe monitor watch log logonly count report reportonly permissive detect test",
	},
	"limits": { // members of one
		"write max":    "events requests rate count maxevents limit",
		"write window": "period interval per duration ttl",
	},
	Max: {
		"take the limit or the zone out, or exempt one client with caddy sliding-window override set --exempt": "unlimited infinite infinity inf none nolimit off",
	},
	Store: {
		"redis":  "redis valkey keydb dragonfly redict garnet rediss sentinel cluster rediscluster",
		"memory": "local mem memory inmemory none off",
	},
	Redis: {
		"address <host>:<port>":                         "host port addr server endpoint",
		"address <host>:<port> ...":                     "hosts addrs addresses servers nodes",
		"address <host>:<port> ..., with master <name>": "sentinels",
		"store redis <url>":                             "url uri",
		"master <name>":                                 "mastername sentinelmaster",
		"username <user>":                               "user",
		"password <secret>":                             "pass auth",
		"db <n>":                                        "database",
		"prefix <text>":                                 "keyprefix",
		"timeout <duration>":                            "dialtimeout connecttimeout readtimeout writetimeout",
		"pool_size <n>":                                 "maxconnections",
		"tls":                                           "ssl tlsenabled",
		"tls { insecure_skip_verify }":                  "tlsinsecure skipverify",
		"store memory, which has it":                    "maxkeys",
	},
	Memory: {
		"max_keys <n>": "capacity maxentries maxsize",
	},
	Placeholder: {
		clientIP: "ip remoteip realip sourceip userip peerip ipaddr ipaddress " +
			"clientaddr clientaddress clienthost remoteaddr remoteaddress binaryremoteaddr " +
			"xforwardedfor xrealip httpxforwardedfor httpxrealip",
		"http.request.uri":        "requesturi",
		"http.request.method":     "requestmethod",
		"http.request.uri.query":  "querystring args",
		"http.request.header.":    "headers.",
		"http.request.cookie.":    "cookies.",
		"http.request.uri.query.": "params. param. args. arg.",
	},
	// The table has both of two units that differ in case, such as M and m.
	Unit: {
		"ms": "ms msec millis millisecond milliseconds",
		"s":  "s sec secs second seconds",
		"m":  "m min mins minute minutes",
		"h":  "h hr hrs hour hours",
		"d":  "d day days",
		"w":  "w wk week weeks",
		"M":  "M",
		"mo": "mo mon month months",
		"y":  "y yr year years",
	},
}

// meanings has table by place and word.
var meanings = func() map[string]map[string]string {
	all := make(map[string]map[string]string, len(table))
	for place, cures := range table {
		all[place] = make(map[string]string)
		for cure, words := range cures {
			for word := range strings.FieldsSeq(words) {
				all[place][word] = cure
			}
		}
	}
	return all
}()

// Meaning returns what to write in place of a word of another product; empty if the word is unknown. Case, `_` and
// `-` make no difference, unless the word has a meaning of its own as it is.
func Meaning(place, word string) string {
	if meaning := meanings[place][word]; meaning != "" {
		return meaning
	}
	return meanings[place][nearest.Squash(word)]
}

// Cure says what to write in place of the value of an option that it does not have: that of another product,
// or one that ends as lines do in other languages. It returns "" for other values.
func Cure(place, word string) string {
	if cure := Ending(word); cure != "" {
		return cure
	}
	return Meaning(place, word)
}

// Ending returns the cure for a character that ends a line in other languages, such as a semicolon; "" for other words.
func Ending(word string) string {
	if strings.HasSuffix(word, ";") || strings.HasSuffix(word, ",") {
		return "take the " + word[len(word)-1:] + " off"
	}
	return ""
}
