// Package browser owns a real Chromium as people use it: windows in which a test clicks,
// types and checks, and the screenshots that the run keeps for people.
//
// Every window fails its test when a page does what no page of ours may do: a script
// error, a word on the console, a broken Content-Security-Policy, a dialog of a script, a
// request to another host, or a hostile text that ran. The package waits for conditions
// and never for time, and it knows no package of the product: what it sees a user sees.
//
// All but this sentence is built with the tag browser alone.
package browser
