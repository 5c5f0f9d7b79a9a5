// Package topology has no code but tests: the Redis store on servers that change
// places under load, behind Sentinels and in a Cluster.
package topology
