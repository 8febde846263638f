package authn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/guard"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn/jwt"
)

// The defaults and bounds of login tokens.
const (
	defaultTokenTTL   = 15 * time.Minute
	maxTokenTTL       = 24 * time.Hour
	defaultSessionTTL = 10 * time.Hour
	maxSessionTTL     = 720 * time.Hour

	// defaultDirectoryTimeout is that of a directory without one.
	defaultDirectoryTimeout = 5 * time.Second
)

// maxTyped bounds a user name and a password as they are typed.
const maxTyped = 256

// logins issues login tokens for passwords and JWTs.
type logins struct {
	directories []NamedDirectory
	tokens      loginTokens
	random      io.Reader

	tokenTTL, sessionTTL time.Duration
	audiences            []string
}

// Login checks a password, a login token to renew, or a JWT to exchange, and issues a login token. Without
// the right password, the decision but for its Detail does not depend on whether there is
// an account of the name, and neither does the work, as far as the directory takes the
// same time.
func (s *Set) Login(ctx context.Context, req LoginRequest) LoginDecision {
	switch {
	case len(req.Token) > maxTokenBytes:
		return LoginDecision{
			Outcome: No, Reason: ReasonTooLarge,
			Message: fmt.Sprintf("the token has %d bytes, at most %d are allowed", len(req.Token), maxTokenBytes),
		}
	case jwt.Shaped(req.Token):
		return s.exchange(ctx, req)
	case req.Token != "" && s.logins != nil:
		return s.renew(ctx, req)
	case s.logins == nil || len(s.logins.directories) == 0:
		return LoginDecision{
			Outcome: No, Reason: ReasonInput,
			Message: "logins with a password are not configured on this server (hint: log in at your identity provider, with --issuer)",
		}
	default:
		return s.login(ctx, req)
	}
}

// login checks a password.
func (s *Set) login(ctx context.Context, req LoginRequest) LoginDecision {
	l := s.logins
	directory, d := l.directory(req.Directory)
	if directory == nil {
		return d
	}
	ctx, cancel := directory.within(ctx)
	defer cancel()
	d = LoginDecision{Outcome: No, Reason: ReasonInput, Directory: directory.Config.Name}
	if d.Message = inputProblem(req.Username, req.Password); d.Message != "" {
		return d
	}
	if d.Message = s.scopeProblem(req.Scope); d.Message != "" {
		return d
	}
	// Directories ignore space around names.
	name := strings.TrimSpace(req.Username)
	account, notFound := directory.Directory.Find(ctx, name)
	if notFound != nil {
		account = nil
		if !errors.Is(notFound, ErrNoAccount) {
			return d.unavailable(notFound)
		}
	}
	err := directory.Directory.Verify(ctx, account, req.Password)
	switch {
	case err == nil && account != nil:
	case err == nil || errors.Is(err, ErrWrongPassword):
		d.Failed, d.Reason, d.Message = true, ReasonCredentials, credentialsMessage
		if account == nil {
			d.Detail = notFound.Error()
		} else {
			d.Detail = account.DN + ": " + err.Error()
		}
		return d
	default:
		d.Failed = errors.Is(err, ErrPasswordSent)
		return d.unavailable(err)
	}
	now := l.tokens.now()
	return s.issue(ctx, directory, account, d, &loginClaims{
		Source: directory.Config.Name, Session: now.Unix(), Ends: now.Add(l.sessionTTL).Unix(), Name: name, Scope: req.Scope,
	})
}

// credentialsMessage is the answer to every name and password that do not log in.
const credentialsMessage = "wrong user name or password, or the account is not allowed to log in"

// renew checks a login token instead of a password. It looks up the user in the directory
// again.
func (s *Set) renew(ctx context.Context, req LoginRequest) LoginDecision {
	l := s.logins
	d := LoginDecision{Outcome: No, Reason: ReasonInput}
	if !isLoginToken(req.Token) {
		d.Message = "this is neither a login token, which can be renewed, nor a JWT, which can be exchanged (hint: log in; the scope of an access token is set when it is issued)"
		return d
	}
	claims, v := l.tokens.verify(req.Token)
	if claims == nil {
		d.Outcome, d.Reason, d.Detail = v.outcome, v.reason, v.detail
		d.Message = "the token was issued by another server, or with a key that was removed (hint: log in again)"
		return d
	}
	// The token is authentic, so this much is known whatever follows.
	d.TokenID, d.User = claims.ID, claims.User
	if claims.JWT != nil {
		d.Message = "the token was made from one of an identity provider, which is exchanged again in place of a renewal (hint: log in again)"
		return d
	}
	i := slices.IndexFunc(l.directories, func(n NamedDirectory) bool { return n.Config.Name == claims.Source })
	if i < 0 {
		d.Outcome = Unknown
		d.Reason, d.Message = ReasonSourceGone, "the directory of the token is no longer configured (hint: log in again)"
		return d
	}
	directory := &l.directories[i]
	d.Directory = directory.Config.Name
	if claims.Scope == "" {
		// Everybody can narrow a session, and nobody can widen it.
		if d.Message = s.scopeProblem(req.Scope); d.Message != "" {
			return d
		}
		claims.Scope = req.Scope
	}
	if req.Scope != "" && req.Scope != claims.Scope {
		d.Message = "the session has another scope, which does not change (hint: log in again)"
		return d
	}
	ctx, cancel := directory.within(ctx)
	defer cancel()
	now := l.tokens.now()
	// A session TTL that was shortened since applies.
	ends := min(claims.Ends, time.Unix(claims.Session, 0).Add(l.sessionTTL).Unix())
	if now.Unix() >= ends {
		d.Reason, d.Message = ReasonSession, "the session ended at "+stamp(ends)+" (hint: log in again)"
		return d
	}
	if s.revoked.find(revokedBy{name: userName, value: claims.User.Username}, time.Unix(claims.Session, 0)) != "" {
		d.Reason, d.Message = ReasonRevoked, "the session was ended by an administrator (hint: log in again)"
		return d
	}
	account, err := directory.Directory.Find(ctx, claims.Name)
	switch {
	case errors.Is(err, ErrNoAccount), err == nil && !claims.isOf(account):
		d.Reason, d.Message = ReasonCredentials, "the account does not exist any more, or is not allowed to log in"
		d.Detail = "the directory has another entry for this name"
		if err != nil {
			d.Detail = err.Error()
		}
		return d
	case err != nil:
		return d.unavailable(err)
	}
	return s.issue(ctx, directory, account, d, &loginClaims{
		Source: claims.Source, Session: claims.Session, Ends: ends, Name: claims.Name, Scope: claims.Scope,
	})
}

// issue issues a token for an account that was authenticated.
func (s *Set) issue(ctx context.Context, directory *NamedDirectory, account *Account, d LoginDecision, claims *loginClaims) LoginDecision {
	l := s.logins
	groups, err := directory.Directory.Groups(ctx, account)
	if err != nil {
		return d.unavailable(err)
	}
	d.User = directory.identity(account, groups)
	if found := s.violations(directory.Config.Name, &d.User); len(found) > 0 {
		d.Outcome, d.Reason, d.Detail = No, ReasonGuard, guard.Summary(found)
		d.Message = "the directory gives an identity that is not allowed: " + d.Detail
		return d
	}
	if s.revoked.find(revokedBy{name: userName, value: d.User.Username}, time.Unix(claims.Session, 0)) != "" {
		d.Outcome, d.Reason = No, ReasonRevoked
		d.Message = "the session was ended by an administrator (hint: log in again in a moment)"
		return d
	}
	claims.Audience, claims.Entry = l.audiences, entryOf(account.Key)
	return s.give(d, claims)
}

// DirectoryName returns the name of the directory that a login with this
// LoginRequest.Directory asks, or "" if there is none.
func (s *Set) DirectoryName(requested string) string {
	if s.logins == nil {
		return ""
	}
	directory, _ := s.logins.directory(requested)
	if directory == nil {
		return ""
	}
	return directory.Config.Name
}

// directory finds the directory that a login names.
func (l *logins) directory(name string) (*NamedDirectory, LoginDecision) {
	names := make([]string, len(l.directories))
	for i := range l.directories {
		names[i] = l.directories[i].Config.Name
		if names[i] == name || name == "" && len(l.directories) == 1 {
			return &l.directories[i], LoginDecision{}
		}
	}
	d := LoginDecision{Outcome: No, Reason: ReasonInput}
	if name == "" {
		d.Message = fmt.Sprintf("there are several directories: %s (hint: --directory NAME)", strings.Join(names, ", "))
	} else {
		d.Message = fmt.Sprintf("unknown directory; the directories are %s (hint: --directory NAME)", strings.Join(names, ", "))
	}
	return nil, d
}

// unavailable is the decision if the directory cannot be asked.
func (d LoginDecision) unavailable(err error) LoginDecision {
	d.Outcome, d.Reason, d.Detail = Unknown, ReasonDirectory, err.Error()
	d.Message = "the directory is not available (hint: try again in a moment)"
	return d
}

// within bounds the time of all calls of the directory for one login.
func (n *NamedDirectory) within(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := defaultDirectoryTimeout
	if n.Config.Timeout != nil {
		timeout = n.Config.Timeout.Duration
	}
	return context.WithTimeout(ctx, timeout)
}

// identity returns the identity of an account, with the prefixes of its directory.
func (n *NamedDirectory) identity(account *Account, groups []string) authenticationv1.UserInfo {
	user := *account.User.DeepCopy()
	if user.Username != "" {
		// An empty name stays empty, for the guard to reject.
		user.Username = n.Config.UsernamePrefix + user.Username
	}
	user.Groups = make([]string, len(groups))
	for i, group := range groups {
		user.Groups[i] = group
		if group != "" {
			user.Groups[i] = n.Config.GroupsPrefix + group
		}
	}
	return user
}

// inputProblem returns why a name and a password cannot be right, for the person who typed
// them.
func inputProblem(name, password string) string {
	switch {
	case name == "" || strings.TrimSpace(name) == "":
		return "the user name is missing"
	case len(name) > maxTyped:
		return fmt.Sprintf("the user name has more than %d bytes", maxTyped)
	case guard.CheckString(name) != "":
		return "the user name contains control or invisible characters, or is not UTF-8"
	case strings.Trim(password, "\x00") == "":
		// RFC 4513, 5.1.2: a bind without a password succeeds and proves nothing.
		return "the password is missing"
	case len(password) > maxTyped:
		return fmt.Sprintf("the password has more than %d bytes", maxTyped)
	default:
		return ""
	}
}

// newLoginTokens returns the authenticator of login tokens. There always is one: another
// replica may have issued a token by a newer configuration.
func newLoginTokens(spec *Spec) loginTokens {
	return loginTokens{keys: spec.LoginKeys, now: spec.Now, sources: sets.New(sourceNames(spec)...)}
}

// newLogins returns the logins of a checked Spec, nil without keys, or without directories and issuers.
func newLogins(spec *Spec, tokens loginTokens) *logins {
	if len(spec.Directories)+len(spec.Issuers) == 0 || spec.Configuration == nil || spec.Configuration.Login == nil {
		return nil
	}
	config := spec.Configuration.Login
	l := &logins{
		directories: spec.Directories, audiences: config.Audiences,
		random:     spec.Random,
		tokenTTL:   defaultTokenTTL,
		sessionTTL: defaultSessionTTL,
		tokens:     tokens,
	}
	if config.TokenTTL != nil {
		l.tokenTTL = config.TokenTTL.Duration
	}
	if config.SessionTTL != nil {
		l.sessionTTL = config.SessionTTL.Duration
	}
	return l
}

// sourceNames returns all sources of identities of a Spec.
func sourceNames(spec *Spec) []string {
	names := []string{v1alpha1.AccessTokensSource}
	for i := range spec.Directories {
		names = append(names, spec.Directories[i].Config.Name)
	}
	for i := range spec.Issuers {
		names = append(names, spec.Issuers[i].Config.Issuer.URL)
	}
	return names
}
