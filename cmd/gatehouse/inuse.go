package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/config"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/telemetry"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/tokens"
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
	// usage, if it is not nil, is told which access tokens there are.
	usage *tokens.Usage

	snapshot atomic.Pointer[webhooks.Snapshot]
	reminder telemetry.Reminder
	// whole is false if there is something in it that does not compile.
	whole bool
	// policies is how many there are.
	policies int
	// tokens are the access tokens in it that have not been withdrawn.
	tokens []issued
}

// issued is an access token and the file that its document was in.
type issued struct{ id, file string }

// use answers by this configuration from now on, and takes the documents of access
// tokens out of it.
func (u *inUse) use(c *config.Config, s *webhooks.Snapshot) {
	u.reminder.Stop()
	u.snapshot.Store(s)
	found := s.Warnings()
	broken := found.Err()
	u.whole = broken == nil
	u.metrics.ConfigLoaded(c.Digest, time.Now(), u.whole)
	u.metrics.PoliciesLoaded(&c.Policy)
	u.metrics.AuthenticationLoaded(&c.Authn)
	policies := len(c.Policy.Policies) + len(c.Policy.AdmissionPolicies)
	u.log.Info("configuration in use", "dir", u.dir, "digest", c.Digest, "files", c.Files,
		"profiles", len(c.Sidecar.Profiles), "policies", policies, "tokens", len(c.Authn.Tokens),
		"issuers", len(c.Authn.Issuers), "directories", len(c.Authn.Directories))
	if u.policies > 0 && policies == 0 {
		u.log.Warn("the configuration has no policy any more: nothing is refused by one", "dir", u.dir, "before", u.policies)
	}
	u.policies = policies
	u.tokens = issuedIn(c)
	if u.usage != nil {
		u.usage.Know(c.Authn.Tokens)
	}
	for _, w := range slices.Concat(c.Warnings, found) {
		logFinding(u.log, w)
	}
	if broken != nil {
		u.tell(notUsable(found), broken)
	}
	// What was compiled holds copies, and there may be a hundred thousand.
	c.Authn.Tokens = nil
	debug.FreeOSMemory() // Compiling leaves many times of what it makes.
}

// keep answers by the same configuration as before, because another one cannot be
// used; but what that one ends, ends. Found are the errors of reading it, if it is
// these that keep it from being used.
func (u *inUse) keep(c *config.Config, found, err error) {
	u.withdraw(c, found)
	serves := "the last good one serves on"
	if !u.whole {
		serves = "the one before, of which not everything compiles, serves on"
	}
	u.tell("configuration not used; "+serves, err)
	logFindings(u.log, err)
	u.metrics.ConfigFailed() // behind the lines that say why
}

// withdraw ends the access tokens whose documents are gone, and what revocations
// end, although the rest of the configuration is not used: somebody has revoked
// them, and must not have to mend other people's documents first. What may be in a
// file that cannot be read is taken to be there still.
func (u *inUse) withdraw(c *config.Config, found error) {
	unreadable, known := unreadableFiles(u.dir, found)
	if !known {
		return
	}
	left := make(map[string]bool, len(c.Authn.Tokens))
	for i := range c.Authn.Tokens {
		left[c.Authn.Tokens[i].Name] = true
	}
	var gone []string
	kept := u.tokens[:0:0]
	for _, token := range u.tokens {
		if left[token.id] || unreadable.holds(token.file) {
			kept = append(kept, token)
		} else {
			gone = append(gone, token.id)
		}
	}
	if len(gone) == 0 && len(c.Authn.Revocations) == 0 {
		return
	}
	u.tokens = kept
	next := *u.snapshot.Load()
	next.Authn = next.Authn.Withdraw(gone, c.Authn.Revocations)
	u.snapshot.Store(&next)
	u.log.Info("access tokens and revocations were taken over from a configuration that is not used otherwise",
		"dir", u.dir, "removed", len(gone), "revocations", len(c.Authn.Revocations))
}

// issuedIn are the access tokens of a configuration.
func issuedIn(c *config.Config) []issued {
	tokens := make([]issued, len(c.Authn.Tokens))
	files := map[string]string{} // The text of a path is kept once.
	for i := range c.Authn.Tokens {
		file, _, _ := strings.Cut(c.Authn.Tokens[i].Source, "#")
		if _, known := files[file]; !known {
			files[strings.Clone(file)] = strings.Clone(file)
		}
		tokens[i] = issued{strings.Clone(c.Authn.Tokens[i].Name), files[file]}
	}
	return tokens
}

// paths are files and directories that could not be read in whole.
type paths []string

// holds tells whether a file is among them, or in one of them.
func (p paths) holds(file string) bool {
	return slices.ContainsFunc(p, func(path string) bool { return file == path || strings.HasPrefix(file, path+"/") })
}

// unreadableFiles are the files that errors of reading a configuration are about,
// and whether that is known of each.
func unreadableFiles(dir string, found error) (paths, bool) {
	if found == nil {
		return nil, true
	}
	list, ok := errors.AsType[finding.List](found)
	if !ok {
		return nil, false
	}
	var files paths
	for _, f := range list {
		if f.Severity != finding.Error {
			continue
		}
		// What is about the directory as a whole has its path.
		file, _, _ := strings.Cut(f.Source, "#")
		if file == "" || file == dir || !fs.ValidPath(file) {
			return nil, false
		}
		files = append(files, file)
	}
	return files, true
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
