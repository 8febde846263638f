package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
)

// issueInCluster makes the token known by a custom resource. Whoever may create
// these and nothing else can issue tokens.
func (f *tokenFlags) issueInCluster(ctx context.Context, s cli.Streams, issued *issuedToken) error {
	// Without the guard and the named scopes of the servers, which judge the object.
	known := authn.Spec{}
	if scope := issued.Document.Spec.Scope; scope != nil && scope.Name != "" {
		if _, own := (*authz.Set)(nil).Rules(scope.Name); !own {
			some, _ := (*authz.Set)(nil).Rules(v1alpha1.ScopeView)
			known.Configuration = &authn.Configuration{AuthenticationConfiguration: v1alpha1.AuthenticationConfiguration{Scopes: []v1alpha1.NamedScope{{Name: scope.Name, Rules: some}}}}
		}
	}
	if err := f.judge(known, issued); err != nil {
		return err
	}
	name := issued.Document.Name
	if f.dryRun {
		return f.printDryRun(s, "would create AccessToken/"+name+" in the cluster", *issued)
	}
	cluster, err := f.cluster(s)
	if err != nil {
		return err
	}
	if _, err = cluster.Create(ctx, &issued.Document); err != nil {
		return f.notCreated(err, "AccessToken/"+name, name)
	}
	made := authn.Token{AccessToken: issued.Document}
	var late error
	if f.wait {
		late = await(ctx, s, awaited{what: "the token", done: "was issued", accepts: "accepts", resource: "accesstokens " + name}, func(ctx context.Context) (tokens.Acceptance, error) {
			return cluster.Acceptance(ctx, name)
		})
	}
	// What is shown is what a directory would have.
	issued.Document.ObjectMeta = metav1.ObjectMeta{Name: name, CreationTimestamp: issued.Document.CreationTimestamp}
	if err := f.print(s, "AccessToken/"+name+" is in the cluster", *issued, late == nil); err != nil {
		_, removed := cluster.Delete(context.WithoutCancel(ctx), &made, false) // nobody has the token
		return errors.Join(err, removed)
	}
	return late
}

const (
	// acceptTimeout bounds the time until every replica accepts a token, and acceptInterval is the pause between two looks.
	acceptTimeout  = 30 * time.Second
	acceptInterval = 200 * time.Millisecond
)

// awaited has the words about what is waited for, and its resource and name for kubectl get.
type awaited struct{ what, done, accepts, resource string }

// await waits until every replica accepts a token, or uses a Grant: an API server remembers an answer for minutes. What cannot be read is
// a remark.
func await(ctx context.Context, s cli.Streams, w awaited, get func(context.Context) (tokens.Acceptance, error)) error {
	ctx, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	line := cli.NewLiveLine(s.Err)
	defer line.Clear()
	began, last := time.Now(), tokens.Acceptance{}
	for {
		now, err := get(ctx)
		switch {
		case errors.Is(err, tokens.ErrForbidden), errors.Is(err, tokens.ErrRefused):
			line.Clear()
			_, _ = fmt.Fprintf(s.Err, "cannot decide whether every replica %s %s yet: %s\n", w.accepts, w.what, err) // a remark
			return nil
		case now.Everywhere:
			if now.Warnings != "" {
				line.Clear()
				_, _ = fmt.Fprintln(s.Err, "warning:", cli.OneLine(now.Warnings)) // a remark
			}
			return nil
		case now.Refused != "":
			return fmt.Errorf("%s %s, and no replica %s it: %s", w.what, w.done, w.accepts, now.Refused)
		case err == nil:
			last = now
		}
		line.Show(func() string {
			return fmt.Sprintf("waiting until every replica %s %s, %s (--wait=false does not)", w.accepts, w.what, time.Since(began).Round(time.Second))
		})
		if !sleep.Context(ctx, acceptInterval) {
			break
		}
	}
	why := cmp.Or(cli.OneLine(last.Message), "no replica has reported on it (hint: servers report with --custom-resources; kubectl get "+w.resource+")")
	return fmt.Errorf("%s %s, and it is unknown whether every replica %s it: %s", w.what, w.done, w.accepts, why)
}
