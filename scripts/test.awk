# Turns the events of go test -json back into what plain go test prints: a line
# for each package, one for each test or part of one that took more than 20 s, and
# the output of what failed. Exits with 1 if a test was skipped. A package is
# skipped too when it has no tests: that is fine.

# field returns the raw JSON string of a field. Quotes inside strings are
# escaped, so that no output can look like a field.
function field(name,    s) {
	if (!match($0, "\"" name "\":\"([^\"\\\\]|\\\\.)*\"")) return ""
	s = substr($0, RSTART, RLENGTH)
	return substr(s, length(name) + 5, length(s) - length(name) - 5)
}

# text decodes a JSON string. Characters outside ASCII are in it as they are.
function text(s,    out, c) {
	out = ""
	while (match(s, /\\./)) {
		out = out substr(s, 1, RSTART - 1)
		c = substr(s, RSTART + 1, 1)
		s = substr(s, RSTART + 2)
		if (c == "n") c = "\n"
		else if (c == "t") c = "\t"
		else if (c == "r") c = "\r"
		else if (c == "b" || c == "f") c = ""
		else if (c == "u") {
			c = tolower(substr(s, 1, 4))
			s = substr(s, 5)
			c = (c in escapes) ? escapes[c] : "?"
		}
		out = out c
	}
	return out s
}

# flush prints what a package's end leaves to say. Output of no test is owned by "".
function flush(pkg, passed,    i, show) {
	for (i = 1; i <= count[pkg]; i++) {
		if (passed) show = owner[pkg, i] == "" && line[pkg, i] ~ /^(ok  |\?   |\t)/
		else show = owner[pkg, i] == "" || result[pkg, owner[pkg, i]] != "pass"
		if (show) printf "%s", line[pkg, i]
		delete line[pkg, i]
	}
	count[pkg] = 0
	fflush()
}

BEGIN {
	escapes["003c"] = "<"; escapes["003e"] = ">"; escapes["0026"] = "&"
	escapes["001b"] = "\033"; escapes["2028"] = "\n"; escapes["2029"] = "\n"
}

# What go prints itself, when it cannot even start.
!/^\{/ { print; fflush(); next }

{
	action = field("Action"); pkg = field("Package"); test = field("Test")
}

action == "build-output" { printf "%s", text(field("Output")); fflush(); next }

action == "output" {
	out = text(field("Output"))
	if (out ~ /^=== (RUN|PAUSE|CONT|NAME) / || out == "PASS\n") next
	i = ++count[pkg]
	owner[pkg, i] = test
	line[pkg, i] = out
	if (test != "") last[pkg, test] = last[pkg, test] out
	next
}

action == "pass" || action == "fail" || action == "skip" {
	if (test == "") { flush(pkg, action != "fail"); next }
	result[pkg, test] = action
	if (match($0, /"Elapsed":[0-9]+/) && substr($0, RSTART + 10, RLENGTH - 10) + 0 > 20) {
		printf "    %s s %s\n", substr($0, RSTART + 10, RLENGTH - 10), test
		fflush()
	}
	if (action == "skip") skipped[++skips] = pkg "\n" last[pkg, test]
	delete last[pkg, test]
}

END {
	for (pkg in count) if (count[pkg] > 0) flush(pkg, 0) # go test was cut off
	if (skips > 0) {
		printf "FAIL: %d skipped; a test that does not run proves nothing:\n", skips
		for (i = 1; i <= skips; i++) printf "%s", skipped[i]
		exit 1
	}
}
