// Package suggest finds limits for the requests of a log: the exact peaks of all keys in some windows, what each of
// twenty limits would have denied, and a pair of limits, one for bursts and one for what goes on for long.
//
// A limit is to deny crawlers and nothing else. Peaks do not say who is a crawler, but where crawlers are, there is a gap
// among the highest peaks: few keys are far above all others. The limit of a window lies in that gap; without a gap, all
// keys count as clients that are welcome, and the limit is twice the highest peak.
package suggest
