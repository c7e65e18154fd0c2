// Package browser owns a real Chromium as users have it: windows in which a test clicks, types and checks, and the
// screenshots of a run.
//
// Every window fails its test if a page has a script error, writes to the console, violates its
// Content-Security-Policy, opens a script's dialog, sends a request to another host, or runs a script from hostile
// text. The package waits for conditions, not for fixed times. It uses no package of the product, and so sees only what
// users see.
//
// Except for this file, the package is only built with the tag browser.
package browser
