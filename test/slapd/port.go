package slapd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are chosen below those that systems give to whoever asks for any, Linux
// from 32768 on: so that none is given away while a server is stopped or only
// about to start.
const (
	lowestPort  = 12000
	highestPort = 32000
	portTries   = 100
)

// freePort returns a port of the loopback address that was free a moment ago.
func freePort() (int, error) {
	var last error
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort)                            //nolint:gosec // any will do
		listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port))) //nolint:noctx // it does not wait
		if err != nil {
			last = err
			continue
		}
		return port, errors.Join(listener.Close())
	}
	return 0, fmt.Errorf("find a free port on %s: %w", address, last)
}
