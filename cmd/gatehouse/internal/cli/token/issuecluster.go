package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login/tokens"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// issueInCluster makes the token known by a custom resource. Whoever may create
// these and nothing else can issue tokens.
func (f *tokenFlags) issueInCluster(ctx context.Context, s cli.Streams, issued *issuedToken) error {
	known, err := f.known(ctx, tokens.Directory{Dir: f.config}, issued.Document.Name)
	if err != nil {
		return err
	}
	if err := f.judge(known, issued); err != nil {
		return err
	}
	cluster, err := f.cluster(s)
	if err != nil {
		return err
	}
	revocations, _, unknown := cluster.Revocations(ctx)
	if unknown != nil && !errors.Is(unknown, tokens.ErrForbidden) {
		return fmt.Errorf("no token was issued: %w", unknown)
	}
	known.Revocations = append(known.Revocations, revocations...)
	if err := f.waitBehind(ctx, &known, issued); err != nil {
		return err
	}
	if f.dryRun {
		return f.printDryRun(s, "would create AccessToken/"+issued.Document.Name+" in the cluster", *issued)
	}
	if err := f.create(ctx, cluster, issued); err != nil {
		return err
	}
	made := []authn.Token{{AccessToken: issued.Document}}
	remove := func() error { return cluster.Delete(context.WithoutCancel(ctx), made, false)[0].Err }
	if revocation, revoked := known.RevokedBy(&issued.Document); revoked {
		// It has the API server's time, which is behind ours.
		return errors.Join(revokedError(&revocation, f.user), remove())
	}
	if unknown != nil {
		_, _ = fmt.Fprintf(s.Err, "cannot decide whether a TokenRevocation revokes it: %s\n", unknown) // a remark
	}
	var late error
	if f.wait {
		late = f.await(ctx, s, cluster, issued.Document.Name)
	}
	// What is shown is what a directory would have.
	issued.Document.ObjectMeta = documentMeta(&issued.Document)
	if err := f.print(s, "AccessToken/"+issued.Document.Name+" is in the cluster", *issued, late == nil); err != nil {
		return errors.Join(err, remove()) // nobody has the token
	}
	return late
}

const (
	// acceptTimeout bounds the time until every replica accepts a token, and acceptInterval is the pause between two looks.
	acceptTimeout  = 30 * time.Second
	acceptInterval = 200 * time.Millisecond
)

// await waits until every replica accepts a token: an API server remembers a no for minutes. What cannot be read is a remark.
func (f *tokenFlags) await(ctx context.Context, s cli.Streams, cluster *tokens.Cluster, name string) error {
	ctx, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	line := cli.NewLiveLine(s.Err)
	defer line.Clear()
	began, last := time.Now(), tokens.Acceptance{}
	for {
		now, err := cluster.Acceptance(ctx, name)
		switch {
		case errors.Is(err, tokens.ErrForbidden), errors.Is(err, tokens.ErrRefused):
			line.Clear()
			_, _ = fmt.Fprintf(s.Err, "cannot decide whether every replica accepts the token yet: %s\n", err) // a remark
			return nil
		case now.Everywhere:
			return nil
		case now.Refused != "":
			return fmt.Errorf("the token was issued, and no replica accepts it: %s", now.Refused)
		case err == nil:
			last = now
		}
		line.Show(func() string {
			return fmt.Sprintf("waiting until every replica accepts the token, %s (--wait=false does not)", time.Since(began).Round(time.Second))
		})
		if !sleep.Context(ctx, acceptInterval) {
			break
		}
	}
	why := cmp.Or(cli.OneLine(last.Message), "no replica has reported on it (hint: servers report with --custom-resources; kubectl get accesstokens "+name+")")
	return fmt.Errorf("the token was issued, and it is unknown whether every replica accepts it: %s", why)
}

// documentMeta returns the metadata that the document of a token has in a directory.
func documentMeta(token *v1alpha1.AccessToken) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: token.Name, CreationTimestamp: token.CreationTimestamp}
}

// create makes the object.
func (f *tokenFlags) create(ctx context.Context, cluster *tokens.Cluster, issued *issuedToken) error {
	_, err := cluster.Create(ctx, &issued.Document)
	switch {
	case errors.Is(err, tokens.ErrExists):
		id := issued.Document.Name
		return fmt.Errorf("AccessToken/%s exists already and is not overwritten (hint: another --id, or %s token revoke%s %s)", id, cli.DisplayName(os.Args[0]), f.Words(), shell.Quote(id))
	case errors.Is(err, tokens.ErrRefused):
		return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("no token was issued:\n%w", err)}
	case err != nil:
		return fmt.Errorf("no token was issued: %w", err)
	}
	return nil
}

// waitBehind waits until the revocation of what the user had before, which is that
// of this very second, has no effect on what is issued. A token that would be dead
// is refused.
func (f *tokenFlags) waitBehind(ctx context.Context, known *tokens.Listing, issued *issuedToken) error {
	for {
		revocation, revoked := known.RevokedBy(&issued.Document)
		if !revoked {
			return nil
		}
		wait := revocation.Spec.IssuedBefore.Sub(f.now())
		if wait > time.Second {
			return revokedError(&revocation, f.user)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		issued.Document.CreationTimestamp = metav1.NewTime(f.now().UTC().Truncate(time.Second))
	}
}

// revokedError refuses a token that would be dead.
func revokedError(revocation *authn.Revocation, user string) error {
	return &cli.ExitError{Code: cli.ExitNo, Err: fmt.Errorf("no token was issued: TokenRevocation/%s in %s rejects all tokens issued to %q before %s",
		revocation.Name, revocation.Source, user, revocation.Spec.IssuedBefore.UTC().Format(time.RFC3339))}
}
