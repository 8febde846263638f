# The image: one static binary and what it needs from an operating system, for any platform that Go compiles for.
#
#	make image                                  # amd64 and arm64, into bin/dist
#	make image IMAGE=REGISTRY/gatehouse PUSH=1  # to a registry
#
# The binary is compiled on the builder's own platform, by the same make target as the binaries of a release, so that both
# are the same bytes.

ARG GO_VERSION=1.26
# Another base is possible, such as a distroless one of yours, without a shell.
ARG BASE=scratch

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
ARG TARGETOS TARGETARCH
ARG VERSION=devel
# Modules and packages stay from build to build, and in no layer.
ENV GOTOOLCHAIN=local GOMODCACHE=/cache/modules GOCACHE=/cache/packages
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/cache \
    make --no-print-directory "bin/dist/gatehouse-${TARGETOS}-${TARGETARCH}" VERSION="${VERSION}" && \
    mkdir -p /image/etc/ssl/certs /image/usr/share && \
    cp "bin/dist/gatehouse-${TARGETOS}-${TARGETARCH}" /image/gatehouse && \
    # Whom to trust where an issuer or a collector has a certificate of a public CA.
    cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ && \
    # Time zones, which expressions may name.
    cp /usr/local/go/lib/time/zoneinfo.zip /image/usr/share/ && \
    echo 'nonroot:x:65532:65532:nonroot:/:/sbin/nologin' > /image/etc/passwd && \
    echo 'nonroot:x:65532:' > /image/etc/group

# No shell, no package manager, nothing that could be run but Gatehouse.
FROM ${BASE}
ARG VERSION=devel
LABEL org.opencontainers.image.title="gatehouse" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /image/ /
ENV ZONEINFO=/usr/share/zoneinfo.zip
# As a number, so that runAsNonRoot can be checked.
USER 65532:65532
# Reviews, and health and metrics.
EXPOSE 9443 8080
ENTRYPOINT ["/gatehouse"]
CMD ["--help"]
