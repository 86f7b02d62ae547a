# The tool and its simulator, for docker-compose.yml. No GPU, no model.
FROM python:3.12.8-slim-bookworm
WORKDIR /app
COPY pyproject.toml README.md ./
COPY loadramp ./loadramp
COPY scenarios ./scenarios
RUN pip install --no-cache-dir . && useradd --create-home ramp && mkdir /reports && chown ramp /reports
USER ramp
ENTRYPOINT ["loadramp"]
CMD ["--help"]
