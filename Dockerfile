# One image for every process of the product; docker-compose.yml names what each runs.
FROM python:3.11.14-slim-bookworm

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PYTHONPATH=/app
WORKDIR /app

COPY requirements.txt ./
RUN pip install --quiet --require-hashes --requirement requirements.txt

RUN useradd --system --uid 10001 --home-dir /var/lib/cronstream --create-home cronstream
COPY cronstream cronstream
COPY sql sql
COPY connectors connectors
COPY coordinator coordinator
COPY streams streams
COPY workers workers
COPY cli cli

USER cronstream
ENV CRONSTREAM_DATA_DIR=/var/lib/cronstream
VOLUME /var/lib/cronstream
CMD ["python", "-m", "cli", "--help"]
