package offline

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/sarif"
)

// results collects what check and lint report for programs.
type results struct {
	list []report.Result
	// same counts the results with the same key.
	same map[string]int
}

// add adds a result. Its fingerprint is made of its file, its rule and the key.
func (r *results) add(result report.Result, key ...string) {
	joined := strings.Join(append([]string{result.File, result.Rule}, key...), "\x00")
	if r.same == nil {
		r.same = map[string]int{}
	}
	r.same[joined]++
	sum := sha256.Sum256([]byte(joined + "\x00" + strconv.Itoa(r.same[joined])))
	result.Fingerprint = hex.EncodeToString(sum[:16])
	r.list = append(r.list, result)
}

// writeSARIF writes the results and what could not be decided.
func (r *results) writeSARIF(out io.Writer, notifications []sarif.Notification) error {
	log := sarif.Log{Tool: "gatehouse", Version: build.Version(), URI: build.ProjectURL, Results: r.list, Notifications: notifications}
	return log.Write(out)
}
