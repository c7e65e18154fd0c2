// Package program owns no code. It is the district of what runs: programs in sandboxes, PHP, and the
// databases of sites.
//
// Its rule: what should run is compared with what runs, and nothing else starts or stops a program.
//
// Begin with app/app.go decides when, runtime/runtime.go says how.
package program
