package rotation

import (
	"strings"
	"testing"
)

func TestZZ(t *testing.T) {
	for i, f := range []faults{{crashes: true, losses: true}, {crashes: true, partitions: true, losses: true, requests: true}, {losses: true, requests: true}, {requests: true, clocks: true}, {crashes: true, partitions: true, requests: true, clocks: true}, everything()} {
		for seed := range uint64(8000) {
			seed += 100000
			m := newModel(seed, soundRules(), f, false)
			m.life()
			if m.failure != nil {
				m = newModel(seed, soundRules(), f, true)
				m.life()
				t.Errorf("%d seed %d %v\n%s", i, seed, m.failure, strings.Join(m.trace, "\n"))
				break
			}
		}
	}
}
