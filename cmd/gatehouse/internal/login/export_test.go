package login

import (
	"cmp"
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// Fake stands for an *authn.Set.
type Fake struct {
	OnLogin  func(context.Context, authn.LoginRequest) authn.LoginDecision
	OnDecide func(ctx context.Context, token string, audiences []string) authn.Decision
	OnLogout func(ctx context.Context, token string) (v1alpha1.TokenRevocationSpec, authn.Decision)
}

// DirectoryName is that of the only directory.
func (f *Fake) DirectoryName(string) string { return "corp" }

func (f *Fake) Login(ctx context.Context, r authn.LoginRequest) authn.LoginDecision {
	return f.OnLogin(ctx, r)
}

func (f *Fake) Decide(ctx context.Context, in authn.Input) authn.Decision {
	return f.OnDecide(ctx, in.Token, in.Audiences)
}

func (f *Fake) Logout(ctx context.Context, token string) (v1alpha1.TokenRevocationSpec, authn.Decision) {
	return f.OnLogout(ctx, token)
}

// HandlerOf is Handler with a Fake.
func HandlerOf(o HandlerOptions, fake *Fake) http.Handler { return HandlerWith(o, fake, 0, 0) }

// HandlerWith is HandlerOf with other limits, 0 for the usual one.
func HandlerWith(o HandlerOptions, fake *Fake, burst, loginsAtOnce int) http.Handler {
	l := defaultLimits()
	l.logins.Burst, l.loginsAtOnce = cmp.Or(burst, l.logins.Burst), cmp.Or(loginsAtOnce, l.loginsAtOnce)
	return newHandler(o, l, func() authenticator { return fake })
}

// What is tested from outside.
var (
	ParseRequest = parseRequest
	Sentence     = sentence
)
