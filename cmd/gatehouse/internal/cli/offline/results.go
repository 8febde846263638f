package offline

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/github"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/junit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/sarif"
	"github.com/gatehouse-dev/gatehouse/internal/build"
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

// writeFailure writes the error of a command that has no results as a report for programs: what reads it takes no empty file. An error
// with an exit code of its own comes behind a report. It returns the error.
func writeFailure(out io.Writer, output, command string, err error) error {
	if exit, ok := errors.AsType[*cli.ExitError](err); ok && exit.Err == nil || err == nil {
		return err
	}
	var failed error
	switch output {
	case "sarif":
		var none results
		failed = none.writeSARIF(out, failureNotifications(err))
	case "junit":
		one := junit.Case{Name: command, Class: "gatehouse", Error: cli.OneLine(err.Error()), Text: err.Error()}
		failed = junit.Write(out, []junit.Suite{{Name: "gatehouse", Cases: []junit.Case{one}}})
	case "github":
		failed = github.Write(out, failureResults(err))
	}
	return errors.Join(err, failed)
}

// failureNotifications returns an error for a SARIF log, and none for nil, as those below for other formats.
func failureNotifications(err error) []sarif.Notification {
	if err == nil {
		return nil
	}
	return []sarif.Notification{{Message: err.Error()}}
}

func failureResults(err error) []report.Result {
	if err == nil {
		return nil
	}
	return []report.Result{{Rule: string(checkUnknown), Level: report.Error, Message: err.Error()}}
}
