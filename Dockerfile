# The image of a release. It is for the platforms that buildx is told, and runs as a user without rights:
#
#	docker build -t caddy-sliding-window .
FROM --platform=$BUILDPLATFORM caddy:2.11.9-builder AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY . .
# Not xcaddy, which resolves versions anew: go.sum has the digest of every module.
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH scripts/release-binary.sh "$PWD/dist/caddy"

FROM caddy:2.11.9
COPY --from=build /src/dist/caddy /usr/bin/caddy
COPY Caddyfile.example /etc/caddy/Caddyfile
USER 65532:65532
EXPOSE 8080
# The admin endpoint answers inside the container only.
HEALTHCHECK --timeout=3s CMD wget -q -O /dev/null http://127.0.0.1:2019/sliding_window/zones
CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]
