package tokens

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

const (
	// usageManager is who the API server notes as the author of status.lastUsed.
	usageManager = "gatehouse-tokens"
	// usageGrain is how far status.lastUsed may be behind.
	usageGrain = time.Hour
	// usageQPS and usageBurst bound what all uses cost the API server, in requests a
	// second and at one time.
	usageQPS, usageBurst = 5, 5
	// usageTimeout bounds one request.
	usageTimeout = 10 * time.Second
	// usageRetry is how long no use of a token is noted after one could not be.
	usageRetry = 10 * time.Minute
	// usageQueue bounds the uses that wait to be written.
	usageQueue = 1024
)

// ClusterUsage notes in the status of access tokens of a cluster when they were last
// used, to the hour. What cannot be written is lost, and a later use of the token is
// noted.
//
// It knows the tokens that Know was told and no others, so that nobody who sends tokens
// can make it grow. It is safe for concurrent use, but for Know, whose calls come one
// after the other.
type ClusterUsage struct {
	client   dynamic.NamespaceableResourceInterface
	problems *problemlog.Log
	due      chan clusterUse

	mu sync.Mutex
	// known has the UID of each token, and next the time before which no use of it is noted.
	known map[string]types.UID
	next  map[types.UID]time.Time
}

// clusterUse is a use of a token that waits to be written.
type clusterUse struct {
	id  string
	uid types.UID
	at  time.Time
}

// NewClusterUsage returns a ClusterUsage with a client of its own, so that it never
// keeps anything else waiting. It asks nothing yet: an error is about the
// configuration.
func NewClusterUsage(access *rest.Config, log *slog.Logger) (*ClusterUsage, error) {
	access = rest.CopyConfig(access)
	access.QPS, access.Burst, access.RateLimiter = usageQPS, usageBurst, nil
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("no client for %s: %w", access.Host, err)
	}
	return newClusterUsage(client, log), nil
}

func newClusterUsage(client dynamic.Interface, log *slog.Logger) *ClusterUsage {
	return &ClusterUsage{
		client:   client.Resource(v1alpha1.GroupVersion.WithResource(tokenResource)),
		problems: problemlog.New(log, "use of access tokens"), due: make(chan clusterUse, usageQueue),
	}
}

// Know makes these the tokens whose use is noted, as far as they are of the
// cluster. Others are forgotten.
func (u *ClusterUsage) Know(tokens []authn.Token) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.next
	u.known, u.next = map[string]types.UID{}, map[types.UID]time.Time{}
	for i := range tokens {
		if token := &tokens[i]; token.Source == config.ClusterSource && token.UID != "" {
			// Copies, so that nothing holds on to the documents.
			uid := types.UID(strings.Clone(string(token.UID)))
			u.known[strings.Clone(token.Name)] = uid
			if next, ok := before[uid]; ok {
				u.next[uid] = next
			}
		}
	}
}

// Note notes that a token was used. It is fast, waits for nobody, and does nothing
// for an id that is not known.
func (u *ClusterUsage) Note(id string, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	uid, ok := u.known[id]
	if !ok || at.Before(u.next[uid]) {
		return
	}
	select {
	case u.due <- clusterUse{strings.Clone(id), uid, at.Truncate(time.Second)}:
		u.next[uid] = at.Add(usageGrain)
	default: // a later use is noted
	}
}

// Run writes what was noted, one token after the other, until ctx is done.
func (u *ClusterUsage) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case use := <-u.due:
			err := u.write(ctx, use)
			class := apierr.Classify(err)
			switch {
			case class == apierr.NotFound, class == apierr.Conflict, ctx.Err() != nil: // it was deleted or replaced
			case err == nil:
				u.problems.Recover(lastUsed)
			default:
				u.report(class.Coarse(), err)
				u.mu.Lock()
				u.next[use.uid] = time.Now().Add(usageRetry)
				u.mu.Unlock()
			}
		}
	}
}

// write writes when the token was used into its status, if it is still this token.
func (u *ClusterUsage) write(ctx context.Context, use clusterUse) error {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": use.uid},
		"status":   map[string]any{"lastUsed": metav1.NewTime(use.at)},
	})
	if err != nil {
		return err
	}
	_, err = u.client.Patch(ctx, use.id, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: usageManager}, "status")
	return err
}

// lastUsed is what a problem of ClusterUsage is about.
const lastUsed = "status.lastUsed"

// report logs a failure once for as long as it lasts.
func (u *ClusterUsage) report(class apierr.Class, err error) {
	hint := "Gatehouse tries again; nothing else depends on it"
	switch class { //nolint:exhaustive // the others need nothing but time
	case apierr.Forbidden:
		hint = apierr.GrantHint("the ClusterRole gatehouse-resources", "patch", "accesstokens/status in "+v1alpha1.GroupVersion.Group+"; nothing else depends on it")
	case apierr.Unserved:
		hint = "apply the CRDs: " + crds.ApplyCommand
	}
	u.problems.Report(lastUsed, string(class), "cannot write when they were last used: "+singleLine(err.Error()), hint)
}
