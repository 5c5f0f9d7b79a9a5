// Package neighbours tests a Caddy with this plugin and others in one program. It is a module of its own, so that they are no
// dependencies of the plugin.
package neighbours
