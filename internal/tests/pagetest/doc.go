// Package pagetest opens the page of `caddy sliding-window page` in Chromium. It is a module of its own,
// so that what drives the browser is no dependency of the plugin.
package pagetest
