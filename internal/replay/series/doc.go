// Package series keeps the times of requests by key, in two to four bytes a request, and finds the exact peak of each
// key: the most requests in any window.
//
// Within the bound on memory, every time is kept. Above it, the times of the keys with the lowest peaks are folded: only
// those within the longest window before now stay, and the peaks so far. Peaks stay exact. What a limit below a
// folded key's peak would have denied it is no longer known but for bounds.
package series
