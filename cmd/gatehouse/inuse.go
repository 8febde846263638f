package main

import (
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/finding"
)

// inUse is the configuration by which a server answers. It tells log and metrics
// what becomes of each that is read, and reminds of one that is not all in use for
// as long as that lasts. Configurations come one after the other; the snapshot may
// be loaded at any time.
type inUse struct {
	dir     string
	log     *slog.Logger
	metrics *telemetry.Telemetry

	snapshot atomic.Pointer[webhooks.Snapshot]
	reminder telemetry.Reminder
	// whole is false if there is something in it that does not compile.
	whole bool
	// policies is how many there are.
	policies int
}

// use answers by this configuration from now on.
func (u *inUse) use(c *config.Config, s *webhooks.Snapshot) {
	u.reminder.Stop()
	u.snapshot.Store(s)
	found := s.Warnings()
	broken := found.Err()
	u.whole = broken == nil
	u.metrics.ConfigLoaded(c.Digest, time.Now(), u.whole)
	u.metrics.PoliciesLoaded(&c.Policy)
	policies := len(c.Policy.Policies) + len(c.Policy.AdmissionPolicies)
	u.log.Info("configuration in use", "dir", u.dir, "digest", c.Digest, "files", c.Files,
		"profiles", len(c.Sidecar.Profiles), "policies", policies, "tokens", len(c.Authn.Tokens))
	if u.policies > 0 && policies == 0 {
		u.log.Warn("the configuration has no policy any more: nothing is refused by one", "dir", u.dir, "before", u.policies)
	}
	u.policies = policies
	for _, w := range slices.Concat(c.Warnings, found) {
		logFinding(u.log, w)
	}
	if broken != nil {
		u.tell(notUsable(found), broken)
	}
	debug.FreeOSMemory() // Compiling leaves many times of what it makes.
}

// keep answers by the same configuration as before, because another one cannot be
// used.
func (u *inUse) keep(err error) {
	serves := "the last good one serves on"
	if !u.whole {
		serves = "the one before, of which not everything compiles, serves on"
	}
	u.tell("configuration not used; "+serves, err)
	logFindings(u.log, err)
	u.metrics.ConfigFailed() // behind the lines that say why
}

// tell logs what is wrong, at once and again for as long as it lasts.
func (u *inUse) tell(message string, err error) {
	since := time.Now()
	n, first := errorsIn(err)
	u.log.Error(message, "dir", u.dir)
	u.reminder.Remind(func() {
		u.log.Error("still: "+message, "dir", u.dir, "since", since, "errors", n, "first", first)
	})
}

// notUsable says what it means that there are errors in a configuration in use.
func notUsable(found finding.List) string {
	const policies, exceptions = "policies do not compile: for what they match, their failurePolicy decides", "exceptions cannot be used: they let nothing pass"
	var ofPolicies, ofExceptions bool
	for _, f := range found {
		if f.Severity == finding.Error {
			ofException := strings.HasPrefix(f.Object, "PolicyException/")
			ofPolicies, ofExceptions = ofPolicies || !ofException, ofExceptions || ofException
		}
	}
	switch {
	case ofPolicies && ofExceptions:
		return policies + "; " + exceptions
	case ofExceptions:
		return exceptions
	default:
		return policies
	}
}

// errorsIn are how many errors there are, and the first.
func errorsIn(err error) (n int, first string) {
	list, ok := errors.AsType[finding.List](err)
	if !ok {
		return 1, err.Error()
	}
	for _, f := range list {
		if f.Severity == finding.Error {
			if n++; n == 1 {
				first = f.Redacted().String()
			}
		}
	}
	return n, first
}
