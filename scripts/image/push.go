package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/mod/semver"
)

// candidate matches what a release candidate has behind its version, as scripts/version prints it.
var candidate = regexp.MustCompile(`^-rc\.\d+$`)

// readLayout returns the index of the image in a layout, and its version.
func readLayout(path string) (v1.ImageIndex, string, error) {
	outer, err := layout.ImageIndexFromPath(path)
	if err != nil {
		return nil, "", fmt.Errorf("%s is no OCI layout (make image writes one): %w", path, err)
	}
	list, err := outer.IndexManifest()
	if err != nil {
		return nil, "", err
	}
	if len(list.Manifests) != 1 || !list.Manifests[0].MediaType.IsIndex() {
		return nil, "", fmt.Errorf("%s holds something else than one image of several platforms: make image writes one", path)
	}
	index, err := outer.ImageIndex(list.Manifests[0].Digest)
	return index, list.Manifests[0].Annotations[refName], err
}

// push sends the image in a layout to a repository of a registry and returns its digest. A tag
// that is a version never moves. The version must be a release or a candidate of one.
func push(ctx context.Context, path, repository string, progress io.Writer) (v1.Hash, error) {
	index, version, err := readLayout(path)
	if err != nil {
		return v1.Hash{}, err
	}
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	if !isRelease(version) && !isCandidate(version) {
		return v1.Hash{}, fmt.Errorf("%s has version %q, which is no release: tag the commit and build again", path, version)
	}
	repo, err := name.NewRepository(repository)
	if err != nil {
		return v1.Hash{}, err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	existing, err := remote.List(repo, options...)
	if err != nil && !isNotFound(err) {
		return v1.Hash{}, fmt.Errorf("list the tags of %s: %w", repo, err)
	}

	old, err := remote.Head(repo.Tag(version), options...)
	switch {
	case err != nil && !isNotFound(err):
		return v1.Hash{}, fmt.Errorf("look for %s: %w", repo.Tag(version), err)
	case err == nil && old.Digest != digest:
		return v1.Hash{}, fmt.Errorf("%s is there with other content (%s, this is %s): release a new version", repo.Tag(version), old.Digest, digest)
	case err != nil:
		if err := remote.WriteIndex(repo.Tag(version), index, options...); err != nil {
			return v1.Hash{}, fmt.Errorf("push %s: %w", repo.Tag(version), err)
		}
	}
	fmt.Fprintf(progress, "%s is %s\n", repo.Tag(version), digest)
	for _, tag := range movingTags(version, existing) {
		if err := remote.Tag(repo.Tag(tag), index, options...); err != nil {
			return v1.Hash{}, fmt.Errorf("tag %s: %w", repo.Tag(tag), err)
		}
		fmt.Fprintf(progress, "%s is the same\n", repo.Tag(tag))
	}
	return digest, nil
}

// movingTags returns the tags that point at a version beside its own: MAJOR.MINOR if no greater
// release of that minor version is there, and latest if no greater release is.
func movingTags(version string, existing []string) []string {
	if !isRelease(version) {
		return nil
	}
	minor, latest := true, true
	for _, tag := range existing {
		if isRelease(tag) && semver.Compare("v"+tag, "v"+version) > 0 {
			latest = false
			minor = minor && semver.MajorMinor("v"+tag) != semver.MajorMinor("v"+version)
		}
	}
	var tags []string
	if minor {
		tags = append(tags, semver.MajorMinor("v" + version)[1:])
	}
	if latest {
		tags = append(tags, "latest")
	}
	return tags
}

// isRelease reports whether a version is MAJOR.MINOR.PATCH and nothing more.
func isRelease(version string) bool {
	v := "v" + version
	return semver.IsValid(v) && semver.Canonical(v) == v && semver.Prerelease(v) == ""
}

// isCandidate reports whether a version is MAJOR.MINOR.PATCH-rc.N.
func isCandidate(version string) bool {
	return candidate.MatchString(semver.Prerelease("v" + version))
}

// isNotFound reports whether a registry says that it has no such repository or tag.
func isNotFound(err error) bool {
	var registryErr *transport.Error
	return errors.As(err, &registryErr) && registryErr.StatusCode == http.StatusNotFound
}
