// Command slipway is the whole program: the server and its command line.
package main

func main() {}
